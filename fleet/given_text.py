"""Which text of a row is scored, as the user says it to a run or to `worker tune`."""

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from fleet.columns import is_text, repeated_column, text_column_names
from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.errors import UsageError
from fleet.storage.inputs.formats import CSV_LAYOUT, kind_of
from fleet.text_template import columns_of


class TextOptions(Protocol):
    """The options that say which text is scored, as `producer/options.py` describes them."""

    @property
    def text_column(self) -> str | None: ...
    @property
    def text_pair_column(self) -> str | None: ...
    @property
    def columns(self) -> str | None: ...


def text_columns(options: TextOptions, schema: pa.Schema, uri: str, *, called: str) -> tuple[str, ...]:
    """The columns that are joined, or those of the template. Raises UsageError if the file lacks one, or it is no text.

    `called` names the file in errors.
    """
    if repeated := repeated_column(schema):
        raise UsageError(f'{called} has several columns "{repeated}". Rename all but one.')
    template, where = template_of(options.text_column), "with --text-column"
    named = DEFAULT_TEXT_COLUMN if options.text_column is None else options.text_column
    names = columns_of(template) if template is not None else text_column_names(named, schema)
    for name in names:
        _check_is_read(name, schema, options, where)
        _check(name, schema, uri, called, where, has_text=is_text if template is None else _has_text)
    if (pair := options.text_pair_column) is not None:
        _check_is_read(pair, schema, options, "with --text-pair-column")
        _check(pair, schema, uri, called, "with --text-pair-column", has_text=is_text)
    return names


def template_of(text_column: str | None) -> str | None:
    r"""The template, if the value has columns in braces. A shell's \n is the end of a line."""
    if text_column is None or not {"{", "}"} & set(text_column):
        return None
    return text_column.replace("\\n", "\n").replace("\\t", "\t")


def _check_is_read(name: str, schema: pa.Schema, options: TextOptions, where: str) -> None:
    if options.columns is not None and name not in schema.names:
        raise UsageError(
            f'The column "{name}" is not read, because --columns leaves it out: add {name}, or name one of these {where}: '
            f"{', '.join(schema.names)}."
        )


def _check(
    name: str, schema: pa.Schema, uri: str, called: str, where: str, *, has_text: Callable[[pa.DataType], bool]
) -> None:
    if name not in schema.names:
        layout = f" {CSV_LAYOUT}" if kind_of(uri) == "CSV" else ""
        raise UsageError(
            f'{called} has no column "{name}"; it has: {", ".join(schema.names)}. Name one {where}.{layout}'
        )
    data_type = schema.field(name).type
    if not has_text(data_type):
        raise UsageError(f'The column "{name}" holds {data_type}, not text. Name a string column {where}.')


def _has_text(data_type: pa.DataType) -> bool:
    """Whether Arrow can write values of this type as text."""
    if is_text(data_type):
        return True
    try:
        pc.cast(pa.nulls(0, data_type), pa.large_string())
    except pa.ArrowNotImplementedError:
        return False
    return True
