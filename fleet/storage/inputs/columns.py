"""The columns of files that do not say their types."""

from collections.abc import Iterator

import pyarrow as pa

from fleet.errors import ShardError
from fleet.storage.inputs.type_names import type_named

Columns = tuple[tuple[str, str], ...]  # (name, Arrow type), as in RunSpec.columns
SEEN = ""  # instead of a type: that of the first rows
REMEDY = "All rows of a run need the same types. Leave the field out with --columns, or convert the files to Parquet."


def named_schema(columns: Columns, uri: str) -> pa.Schema:
    """Raises ShardError for a type that only Parquet has."""
    return pa.schema([pa.field(name, _type(name, kind, uri)) for name, kind in columns])


def seen_names(columns: Columns) -> list[str]:
    """The columns whose types are those of the first rows."""
    return [name for name, kind in columns if kind == SEEN]


def typed(columns: Columns, seen: pa.Schema, uri: str) -> pa.Schema:
    """The columns, of which some have the types of the first rows. Raises ShardError if these have no such field."""
    for name in seen_names(columns):
        if name not in seen.names:
            raise ShardError(f'{uri} has no field "{name}" in its first rows.')
    return named_schema(tuple((name, kind or str(seen.field(name).type)) for name, kind in columns), uri)


def _type(name: str, kind: str, uri: str) -> pa.DataType:
    try:
        return type_named(kind)
    except ValueError as error:
        raise ShardError(f'{uri} cannot have the column "{name}" of the run, which is {kind}. {REMEDY}') from error


def counted_rows(rows_of_blocks: Iterator[int], most: int | None) -> int:
    """Their sum, or `most` if it is more. Then the other blocks are not read."""
    total = 0
    for rows in rows_of_blocks:
        total += rows
        if most is not None and total >= most:
            return most
    return total


def sliced(table: pa.Table, most_rows: int) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=most_rows)
