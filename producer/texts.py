"""Which text of a row is scored, and how much of it, as the user says it."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fleet.columns import is_text, repeated_column, text_column_names
from fleet.errors import UsageError
from fleet.shard import Shard
from fleet.storage.inputs.formats import CSV_LAYOUT, kind_of
from fleet.text_template import columns_of
from producer.options import RunOptions

_DEFAULT = RunOptions().text_column


def text_columns(options: RunOptions, schema: pa.Schema, shard: Shard) -> tuple[str, ...]:
    """The columns that are joined, or those of the template. Raises UsageError if the shard lacks one, or it is no text."""
    if repeated := repeated_column(schema):
        raise UsageError(f'Shard {shard.name} has several columns "{repeated}". Rename all but one.')
    template = text_template(options)
    names = columns_of(template) if template is not None else text_column_names(options.text_column, schema)
    where = "with --text-column" if template is None else "in --text-template"
    for name in names:
        _check_is_read(name, schema, options, where)
        _check(name, schema, shard, where, has_text=is_text if template is None else _has_text)
    if (pair := options.text_pair_column) is not None:
        _check_is_read(pair, schema, options, "with --text-pair-column")
        _check(pair, schema, shard, "with --text-pair-column", has_text=is_text)
    return names


def _check_is_read(name: str, schema: pa.Schema, options: RunOptions, where: str) -> None:
    if options.columns is not None and name not in schema.names:
        raise UsageError(
            f'The column "{name}" is not read, because --columns leaves it out: add {name}, or name one of these {where}: '
            f"{', '.join(schema.names)}."
        )


def _check(name: str, schema: pa.Schema, shard: Shard, where: str, *, has_text: Callable[[pa.DataType], bool]) -> None:
    if name not in schema.names:
        layout = f" {CSV_LAYOUT}" if kind_of(shard.uri) == "CSV" else ""
        raise UsageError(
            f'Shard {shard.name} has no column "{name}"; it has: {", ".join(schema.names)}. Name one {where}.{layout}'
        )
    data_type = schema.field(name).type
    if not has_text(data_type):
        raise UsageError(f'The column "{name}" holds {data_type}, not text. Name a string column {where}.')


def text_template(options: RunOptions) -> str | None:
    r"""The template, in which a shell's \n is the end of a line. Raises UsageError beside --text-column."""
    if options.text_template is None:
        return None
    if options.text_column != _DEFAULT:
        raise UsageError("Use only one of --text-column and --text-template.")
    return options.text_template.replace("\\n", "\n").replace("\\t", "\t")


def _has_text(data_type: pa.DataType) -> bool:
    """Whether Arrow can write values of this type as text."""
    if is_text(data_type):
        return True
    try:
        pc.cast(pa.nulls(0, data_type), pa.large_string())
    except pa.ArrowNotImplementedError:
        return False
    return True
