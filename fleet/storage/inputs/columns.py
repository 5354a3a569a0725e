"""The columns of files that do not say their types."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from fleet.errors import ShardError, UsageError
from fleet.storage.inputs.type_names import type_named

Columns = tuple[tuple[str, str], ...]  # (name, Arrow type), as in RunSpec.columns
SEEN = ""  # instead of a type: that of the first rows
NAMED_TYPES = ("string", "int64", "double", "bool")  # of --columns
REMEDY = "All rows of a run need the same types. Leave the field out with --columns, or convert the files to Parquet."
RUN_REMEDY = f"{REMEDY} Either is a new run, with another --output."


def named_schema(columns: Columns, uri: str) -> pa.Schema:
    """Raises ShardError for a type that only Parquet has."""
    return pa.schema([pa.field(name, _type(name, kind, uri)) for name, kind in columns])


def seen_names(columns: Columns) -> list[str]:
    """The columns whose types are those of the first rows."""
    return [name for name, kind in columns if kind == SEEN]


def no_such_field(name: str, names: Iterable[str], uri: str, *, hint: str = "") -> UsageError:
    """About a field of --columns that the first rows do not have. They have those of `names`."""
    known = list(names)
    field, _, kind = name.rpartition(":")
    if field in known:
        *most, last = NAMED_TYPES
        return UsageError(f"{kind!r} is not a type of --columns: {', '.join(most)} or {last}.")
    return UsageError(f'{uri} has no field "{name}" in its first rows; it has: {", ".join(known)}. {hint}'.rstrip())


def typed(columns: Columns, seen: pa.Schema, uri: str) -> pa.Schema:
    """The columns, of which some have the types of the first rows, which have these fields."""
    return named_schema(tuple((name, kind or str(seen.field(name).type)) for name, kind in columns), uri)


def _type(name: str, kind: str, uri: str) -> pa.DataType:
    try:
        return type_named(kind)
    except ValueError as error:
        raise ShardError(f'{uri} cannot have the column "{name}" of the run, which is {kind}. {RUN_REMEDY}') from error


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
