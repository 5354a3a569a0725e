"""The text of a row: how the user names its columns, how it is made from them, and its digest."""

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from string import Formatter
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.columns import NAMED_TYPES, SEEN, ColumnTypes
from shardsift.fleet.inputs.formats import CSV_LAYOUT, format_name
from shardsift.fleet.run.choices import DEFAULT_TEXT_COLUMN
from shardsift.fleet.run.output_columns import repeated_column
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.scoring import Scoring


class TextOptions(Protocol):
    """The options that choose the text columns. The options of a run implement it."""

    @property
    def text_column(self) -> str | None: ...
    @property
    def text_pair_column(self) -> str | None: ...
    @property
    def columns(self) -> str | None: ...


def text_columns(options: TextOptions, schema: pa.Schema, uri: str, *, called: str) -> tuple[str, ...]:
    """Return the text columns, which are joined or used in the template.

    Raises UsageError for a missing or unusable column. `called` is the name of the file in errors.
    """
    if repeated := repeated_column(schema):
        raise UsageError(f'{called} has several columns "{repeated}". Rename all but one.')
    template = template_of(options.text_column)
    named = DEFAULT_TEXT_COLUMN if options.text_column is None else options.text_column
    names = columns_of(template) if template is not None else _column_names(named, schema)
    has_text = is_text if template is None else _has_text
    columns = [(name, "with --text-column", has_text) for name in names]
    if (pair := options.text_pair_column) is not None:
        columns.append((pair, "with --text-pair-column", is_text))
    for name, where, holds_text in columns:
        if name not in schema.names:
            raise _no_column(name, schema, options, where, uri=uri, called=called)
        data_type = schema.field(name).type
        if not holds_text(data_type):
            raise UsageError(f'The column "{name}" holds {data_type}, not text. Name a string column {where}.')
    return names


def template_of(text_column: str | None) -> str | None:
    r"""Return `text_column` as a template if it has braces, else None. Written \n and \t become line end and tab."""
    if text_column is None or not {"{", "}"} & set(text_column):
        return None
    return text_column.replace("\\n", "\n").replace("\\t", "\t")


def _column_names(text_column: str, schema: pa.Schema) -> tuple[str, ...]:
    if text_column in schema.names:
        return (text_column,)
    names = tuple(dict.fromkeys(name.strip() for name in text_column.split(",") if name.strip()))
    if not names:
        raise UsageError("--text-column is empty. Name the column to score.")
    return names


def _no_column(name: str, schema: pa.Schema, options: TextOptions, where: str, *, uri: str, called: str) -> UsageError:
    names = ", ".join(schema.names)
    if options.columns is not None:
        return UsageError(
            f'The column "{name}" is not read, because --columns leaves it out: add {name}, or name one of these {where}: '
            f"{names}."
        )
    layout = f" {CSV_LAYOUT}" if format_name(uri) == "CSV" else ""
    return UsageError(f'{called} has no column "{name}"; it has: {names}. Name one {where}.{layout}')


def is_text(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return is_text(data_type.value_type)
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def _has_text(data_type: pa.DataType) -> bool:
    if is_text(data_type):
        return True
    try:
        pc.cast(pa.nulls(0, data_type), pa.large_string())
    except pa.ArrowNotImplementedError:
        return False
    return True


# Templates: texts with column names in braces, such as "{url}\n\n{text}".


def parts_of(template: str) -> list[tuple[str, str | None]]:
    """Split a template into literals, each with the column that follows it (None at the end). `{{` stands for a brace.

    Raises UsageError if the template is invalid, or names no column.
    """
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"--text-column {template!r} cannot be read: {error}. Write {{{{ for a brace.") from error
    for _, name, format_spec, conversion in parsed:
        if name == "" or format_spec or conversion:
            raise UsageError(
                f"--text-column takes only names of columns in braces, like {{url}}, and no formats; it is {template!r}."
            )
    if not any(name for _, name, _, _ in parsed):
        raise UsageError(f"--text-column names no column, like {{text}}; it is {template!r}.")
    return [(literal, name) for literal, name, _, _ in parsed]


def columns_of(template: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, name in parts_of(template) if name))


# The option --columns: the columns of JSON Lines and CSV files to read.


def chosen_columns(text: str | None) -> ColumnTypes | None:
    """Parse a value of --columns, such as `id,ups:int64`, into pairs of name and type. None for None.

    A column without a type gets SEEN, which stands for the type found in a sample. A colon before anything but a type
    is part of the name. Raises UsageError for a value without names, and for a repeated name.
    """
    if text is None:
        return None
    columns = tuple(map(_column, filter(None, map(str.strip, text.split(",")))))
    names = [name for name, _ in columns]
    if not names:
        raise UsageError("--columns is empty. Name the columns to read.")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f'--columns names "{repeated}" twice.')
    return columns


def _column(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition(":")
    return (name, kind) if name and kind in NAMED_TYPES else (text, SEEN)


# The text of each row, for workers, `producer scores` and the Runs page.

_BETWEEN = pa.scalar("\n\n", pa.large_string())  # separates joined columns


def texts_of(rows: pa.Table, scoring: Scoring) -> pa.LargeStringArray | pa.StructArray:
    """Return the text of each row, or its pair of texts. Null if all columns are null.

    A column that is null or blank is skipped in a join, and empty in a template.
    """
    return row_texts(rows, scoring.text_columns, template=scoring.text_template, pair_column=scoring.text_pair_column)


def whole_texts(rows: pa.Table, scoring: Scoring) -> list[str]:
    """Return each row's text as it is scored. For a pair, both texts are joined. Empty for a row without a text."""
    texts = texts_of(rows, scoring)
    parts = texts.flatten() if isinstance(texts, pa.StructArray) else [texts]
    return ["\n\n".join(filter(None, values)) for values in zip(*(part.to_pylist() for part in parts), strict=True)]


def texts_key(scoring: Scoring) -> Hashable:
    """Return a key that is equal for scorings that score the same texts."""
    return scoring.text_columns, scoring.text_template, scoring.text_pair_column


def row_texts(
    rows: pa.Table, columns: Sequence[str], *, template: str | None, pair_column: str | None
) -> pa.LargeStringArray | pa.StructArray:
    texts = _joined([_text_column(rows, name) for name in columns]) if template is None else _filled(rows, template)
    return texts if pair_column is None else pairs(texts, _text_column(rows, pair_column))


def pairs(firsts: pa.LargeStringArray, seconds: pa.LargeStringArray) -> pa.StructArray:
    """Make pairs with the fields `first` and `second`. A pair is null if one of its texts is."""
    mask = pc.or_(pc.is_null(firsts), pc.is_null(seconds))
    return pa.StructArray.from_arrays([firsts, seconds], names=["first", "second"], mask=mask)


def is_blank(texts: pa.LargeStringArray | pa.StructArray) -> pa.BooleanArray:
    """Return for each text whether it is empty or only Unicode white space. Null for null.

    A pair counts as blank if one of its texts does.
    """
    if isinstance(texts, pa.StructArray):
        return pc.or_(*map(is_blank, texts.flatten()))
    return pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))


def _text_column(rows: pa.Table, name: str) -> pa.LargeStringArray:
    return rows.column(name).cast(pa.large_string()).combine_chunks()


def _joined(columns: Sequence[pa.LargeStringArray]) -> pa.LargeStringArray:
    """Join the columns that are not blank. If all are blank in a row, take the first that is not null."""
    if len(columns) == 1:
        return columns[0]
    return pc.coalesce(reduce(_both, map(_without_blank, columns)), *columns)


def _both(one: pa.LargeStringArray, other: pa.LargeStringArray) -> pa.LargeStringArray:
    """Join two texts, or take the one that is not null. Arrow's null_handling="skip" would drop rows of two nulls."""
    return pc.coalesce(pc.binary_join_element_wise(one, other, _BETWEEN), one, other)


def _without_blank(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return pc.if_else(is_blank(texts), pa.scalar(None, texts.type), texts)


def _filled(rows: pa.Table, template: str) -> pa.LargeStringArray:
    parts = parts_of(template)
    columns = {name: _text_column(rows, name) for _, name in parts if name}
    empty = pa.scalar("", pa.large_string())
    pieces: list[pa.LargeStringArray | pa.Scalar] = []
    for literal, name in parts:
        pieces += [pa.scalar(literal, pa.large_string())] if literal else []
        pieces += [pc.fill_null(columns[name], empty)] if name else []
    text = pc.binary_join_element_wise(*pieces, empty)
    is_missing = reduce(pc.and_, map(pc.is_null, columns.values()))
    return pc.if_else(is_missing, pa.scalar(None, pa.large_string()), text)


# A digest of each row's text, used to find rows with equal texts.

DIGEST_BYTES = 16


def row_digests(rows: pa.Table, scorings: Sequence[Scoring]) -> pa.FixedSizeBinaryArray:
    """Return a digest of each row's text as it is scored: BLAKE2b of its UTF-8. Null if the row has no text.

    If the scorings read several texts of a row, or a pair, returns a digest of their digests, in order. Null if one of
    them is null.
    """
    texts = {texts_key(scoring): texts_of(rows, scoring) for scoring in scorings}.values()
    parts = [part for one in texts for part in (one.flatten() if isinstance(one, pa.StructArray) else [one])]
    contents = zip(*(part.cast(pa.large_binary()).to_pylist() for part in parts), strict=True)
    return pa.array([None if None in row else _row_digest(row) for row in contents], pa.binary(DIGEST_BYTES))


def _row_digest(texts: Sequence[bytes]) -> bytes:
    first, *others = (hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts)
    return hashlib.blake2b(first + b"".join(others), digest_size=DIGEST_BYTES).digest() if others else first


# A digest of a window's texts, so that stored scores are used only for the texts that they belong to. The metadata of a
# scores file has the digests of its windows.

_DIGESTS_KEY = "shardsift.texts"
_HEX_DIGITS = 32


def scored_digest(rows: pa.Table, scoring: Scoring) -> str:
    """Return a digest of the columns from which a scoring makes its texts. Equal digests mean equal texts."""
    columns = [*scoring.text_columns, *filter(None, [scoring.text_pair_column])]
    digests = (text_digest(rows.column(name).cast(pa.large_string()).combine_chunks()) for name in columns)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:_HEX_DIGITS]


def as_metadata(digests: Mapping[int, Sequence[str]]) -> dict[str, str]:
    """Return the metadata for a scores file. `digests` has one digest per scoring, by the first row of the window."""
    return {_DIGESTS_KEY: json.dumps(digests)}


def digests_in(scores: pq.ParquetFile, receipt: Receipt) -> dict[tuple[int, int], list[str]]:
    """Read the digests of a shard's windows, by (first row, row after the last row) in the input file.

    Each window has one digest per scoring. Empty if the scores file has none.
    """
    told = json.loads(scores.metadata.metadata.get(_DIGESTS_KEY.encode(), b"{}"))
    starts = [row - int(next(iter(told))) for row in map(int, told)]  # in the scores file
    ends = [*starts[1:], scores.metadata.num_rows]
    first, rows = receipt.scores_first_row, receipt.rows_in
    return {
        (receipt.first_row + start - first, receipt.first_row + end - first): digests
        for start, end, digests in zip(starts, ends, told.values(), strict=False)
        if first <= start < first + rows
    }


def text_digest(texts: pa.LargeStringArray) -> str:
    """Return a digest of texts in order, whatever their layout in Arrow. Null and the empty text differ."""
    lengths = pc.fill_null(pc.binary_length(texts), -1)
    digest = hashlib.sha256(lengths.to_numpy().astype("<i8"))
    digest.update(_content(texts.drop_null()))
    return digest.hexdigest()[:_HEX_DIGITS]


def _content(texts: pa.LargeStringArray) -> memoryview:
    _, offsets, content = texts.buffers()
    if not len(texts) or content is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]
