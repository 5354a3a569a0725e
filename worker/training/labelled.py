"""Read labelled texts from input files, batch by batch. Knows nothing of models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleet.columns import is_text
from fleet.errors import ShardsiftError, UsageError
from fleet.given_text import template_of
from fleet.storage.errors import translated
from fleet.storage.inputs.input_file import InputFile
from fleet.storage.inputs.line_blocks import THEN_RETRY
from fleet.storage.inputs.opening import open_input
from fleet.text_digests import text_digest
from worker.shard.texts import row_texts
from worker.training.labels import LabelSource, checked_columns, shown_path


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with a label each. None of them is null."""

    texts: pa.LargeStringArray
    labels: pa.Array  # numbers, texts or booleans
    label_column: str
    shown: str  # the files, for messages
    left_out: int = 0  # rows whose label has too low a score

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> "Labelled":
        chosen = pa.array(rows)
        return replace(self, texts=self.texts.take(chosen), labels=self.labels.take(chosen))

    @property
    def digest(self) -> str:
        """Equal for equal rows in the same order, whatever files hold them."""
        return f"{self.labels.type} {text_digest(self.texts)} {text_digest(self.labels.cast(pa.large_string()))}"


def read_labelled(source: LabelSource) -> Labelled:
    """All rows of the files. Raises UsageError if a file lacks a column, or a row one of the two values."""
    try:
        parts = [part for uri in source.file_uris for part in _parts(uri, source)]
    except ShardsiftError as error:
        raise UsageError(str(error).replace(THEN_RETRY, "then repeat the command")) from error
    kind = _common_type(parts, source)
    return Labelled(
        texts=pa.concat_arrays([pa.array([], pa.large_string()), *(part.texts for part in parts)]),
        labels=pa.concat_arrays([pa.array([], kind), *(part.labels.cast(kind) for part in parts)]),
        label_column=source.label_column,
        shown=source.shown,
        left_out=sum(part.left_out for part in parts),
    )


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Some rows of one file."""

    texts: pa.LargeStringArray
    labels: pa.Array
    file: str
    left_out: int


def _parts(uri: str, source: LabelSource) -> Iterator[_Part]:
    first_row = 0
    with _opened(uri, source) as (file, columns), translated(f"Reading {uri}"):
        read = [name for name in file.schema.names if name in {*columns, *source.label_columns}]
        for batch in file.batches(read, use_threads=False):
            yield _part(pa.Table.from_batches([batch]), columns, source, shown_path(uri), first_row)
            first_row += len(batch)


@contextmanager
def _opened(uri: str, source: LabelSource) -> Iterator[tuple[InputFile, tuple[str, ...]]]:
    """The file with the columns of its texts. Other fields of a file of lines are not looked at."""
    with open_input(uri) as file:
        columns, schema = checked_columns(source, file.schema, uri), file.schema
    types = tuple((name, str(schema.field(name).type)) for name in dict.fromkeys((*columns, *source.label_columns)))
    with open_input(uri, types, only=True) as file:
        yield file, columns


def _part(rows: pa.Table, columns: tuple[str, ...], source: LabelSource, file: str, first_row: int) -> _Part:
    texts = row_texts(rows, columns, template=template_of(source.text.text_column), pair_column=None)
    labels = rows.column(source.label_column).combine_chunks()
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    _check_filled(texts, first_row, f"Row {{row}} of {file} has no text.")
    _check_filled(labels, first_row, f'Row {{row}} of {file} has no label in "{source.label_column}".')
    if pa.types.is_floating(labels.type):
        finite = pc.if_else(pc.is_finite(labels), labels, None)
        _check_filled(finite, first_row, f"The label of row {{row}} of {file} is not a finite number.")
    if source.least_score is not None:
        is_sure = pc.fill_null(pc.greater_equal(rows.column(source.score_column), source.least_score), False)
        texts, labels = texts.filter(is_sure.combine_chunks()), labels.filter(is_sure.combine_chunks())
    return _Part(texts=texts, labels=labels, file=file, left_out=len(rows) - len(texts))


def _check_filled(values: pa.Array, first_row: int, message: str) -> None:
    if values.null_count:
        row = first_row + values.is_null().index(True).as_py()
        raise UsageError(f"{message.format(row=row)} Leave such rows out.")


def _common_type(parts: list[_Part], source: LabelSource) -> pa.DataType:
    """Integers and fractions are numbers. Raises UsageError for files whose labels are of different kinds."""
    files: dict[pa.DataType, str] = {}
    for part in parts:
        files.setdefault(part.labels.type, part.file)
    if len(files) == 1:
        return next(iter(files))
    if all(map(is_text, files)):
        return pa.large_string()
    if all(map(pa.types.is_integer, files)):
        return pa.int64()
    if not files or all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in files):
        return pa.float64()
    one, other, *_ = files
    raise UsageError(
        f'The labels in "{source.label_column}" are {one} in {files[one]} and {other} in {files[other]}. '
        "Store them alike."
    )
