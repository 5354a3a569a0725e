"""Find the columns of a run's input: from the schema or a sample of its files, and from the names of their folders."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count

import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.columns import SEEN, ColumnTypes, has_json, schema_of
from shardsift.fleet.inputs.folder_columns import folder_values, renamed
from shardsift.fleet.inputs.formats import format_name, has_footer
from shardsift.fleet.inputs.open_input import columns_of_lines, open_input
from shardsift.fleet.run.output_columns import describe_columns
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.run.text import chosen_columns
from shardsift.producer.planning.inputs import Input, refuse_same_names, renamed_input

_LOOKS_FOR_TYPES = 100  # shards to read until one has types for all columns


@dataclass(frozen=True, kw_only=True)
class FoundColumns:
    """The columns of the input's rows.

    `of_folders` has the columns whose values come from the names of folders (`name=value`). Shard names in `source` omit
    these folders.
    """

    source: Input
    columns: ColumnTypes
    schema: pa.Schema
    of_folders: tuple[str, ...]
    row_columns: tuple[str, str]  # names of the columns that the run adds for the shard and row of a kept row
    are_chosen: bool  # by --columns; the files may have others
    notes: tuple[str, ...]


def find_columns(source: Input, named: str | None, *, like: RunSpec | None = None) -> FoundColumns:
    """Find the columns that --columns names, otherwise all. Raises UsageError if the files lack a named column.

    Without --columns, JSON Lines and CSV get the columns of the run `like`, if it is given, because a sample of other files
    may show other types.
    """
    chosen, are_chosen = chosen_columns(named), named is not None
    if like and named is None and not has_footer(source.shards[0].uri):
        chosen, are_chosen = like.columns, like.only_columns
    of_folders = _folder_columns(source.shards, chosen or ())
    if chosen is not None:
        chosen = tuple(column for column in chosen if column[0] not in of_folders)
        if not chosen and has_footer(source.shards[0].uri):
            chosen = None
    source = with_folder_columns(source, of_folders)
    columns, schema = _columns_of_rows(source, chosen)
    for name in of_folders:
        schema = schema.append(pa.field(name, pa.string()))
        columns = (*columns, (name, "string"))
    return FoundColumns(
        source=source,
        columns=columns,
        schema=schema,
        of_folders=of_folders,
        row_columns=_row_columns(source, schema),
        are_chosen=are_chosen and chosen is not None,
        notes=() if named is not None else tuple(_notes(columns)),
    )


def _folder_columns(shards: Sequence[Shard], chosen: ColumnTypes) -> tuple[str, ...]:
    """Return the chosen columns that the first file lacks and whose values are in the names of folders (`name=value`).

    Raises UsageError if another file is in no such folder, or if another type than text is chosen for such a column.
    """
    there = folder_values(shards[0].uri)
    of_folders = {name: kind for name, kind in chosen if name in there and not _has_field(shards[0], name)}
    for name, kind in of_folders.items():
        if kind not in (SEEN, "string"):
            raise UsageError(f"--columns {name}:{kind}: the values of folders are text. Write {name}.")
        if lacking := next((shard for shard in shards if name not in folder_values(shard.uri)), None):
            raise UsageError(f"--columns {name}: {lacking.uri} is in no folder {name}=…. Leave {name} or the file out.")
    return tuple(of_folders)


def with_folder_columns(source: Input, names: Collection[str]) -> Input:
    """Remove the folders `name=value` of these columns from shard names. Raises UsageError if two names become equal."""
    found = renamed_input(source, partial(renamed, folder_columns=names))
    refuse_same_names(found.shards, advice="Rename one, or leave the folder out of --columns.")
    return found


def _has_field(shard: Shard, name: str) -> bool:
    try:
        with open_input(shard.uri, ((name, SEEN),), only=True) as file:
            return name in file.schema.names
    except ShardError as error:
        raise UsageError(f"The first shard cannot be read. {error}") from error
    except UsageError:
        return False


def _columns_of_rows(source: Input, chosen: ColumnTypes | None) -> tuple[ColumnTypes, pa.Schema]:
    """Return the columns and their schema. For JSON Lines and CSV, finds them in a sample of the files.

    For Parquet, takes the columns of the first shard. If it has a column of type null, which pandas writes for files without
    rows, takes those of the next shard that has none. Looks at _LOOKS_FOR_TYPES shards at most; if all have one, stays with
    the first. Raises UsageError if a shard cannot be read, or if columns are chosen for Parquet.
    """
    first = source.shards[0]
    try:
        if not has_footer(first.uri):
            files = dict.fromkeys(one.uri for one in source.shards if format_name(one.uri) == format_name(first.uri))
            columns = columns_of_lines([*files], chosen)
            return columns, schema_of(columns, first.uri)
        if chosen is not None:
            raise UsageError(
                "Of Parquet files every column is read. --columns is for JSON Lines and CSV files, and for the values of folders "
                f"like year=2024, of which {first.uri} has: {', '.join(folder_values(first.uri)) or 'none'}. Leave out --columns."
            )
        schemas = (_schema_of(shard) for shard in source.shards[:_LOOKS_FOR_TYPES])
        own = next(schemas)
        schema = own if not _lacks_types(own) else next((one for one in schemas if not _lacks_types(one)), own)
        return describe_columns(schema), schema
    except ShardError as error:
        is_model = first.uri.endswith(("/config.json", "/tokenizer.json"))
        hint = " Is this the folder of a model? It belongs to --model." if is_model else ""
        raise UsageError(f"The first shard cannot be read. {error}{hint}") from error


def _lacks_types(kind: pa.Schema | pa.DataType) -> bool:
    fields = kind if isinstance(kind, pa.Schema) else map(kind.field, range(kind.num_fields))
    return any(pa.types.is_null(field.type) or _lacks_types(field.type) for field in fields)


def _schema_of(shard: Shard) -> pa.Schema:
    with open_input(shard.uri) as file:
        return file.schema


def _row_columns(source: Input, schema: pa.Schema) -> tuple[str, str]:
    """Return names for the columns that the run adds for the shard and row of a kept row.

    These are `shard` and `row`, or `shard_2` and `row_2` and so on if the input has these names.
    """
    of_folders = (name for shard in source.shards for name in folder_values(shard.name))
    taken = {name.lower() for name in (*schema.names, *of_folders)}
    pairs = chain([("shard", "row")], ((f"shard_{number}", f"row_{number}") for number in count(2)))
    return next(pair for pair in pairs if taken.isdisjoint(pair))


def _notes(columns: ColumnTypes) -> Iterator[str]:
    if names := [name for name, kind in columns if has_json(kind)]:
        yield (
            "Kept as JSON text, wholly or in part, because the sample shows no type that holds all values: "
            f"{', '.join(names)}."
        )
