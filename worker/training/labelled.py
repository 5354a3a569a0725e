"""Read labelled texts from a Parquet file. Knows nothing of models."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleet.columns import is_text
from fleet.errors import ShardsiftError, UsageError
from fleet.storage.errors import translated
from fleet.storage.opening import open_parquet
from worker.scoring.tokenizing.texts import plain_texts


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with a label each. None of them is null."""

    texts: pa.LargeStringArray
    labels: pa.Array  # numbers, texts or booleans
    label_column: str
    file: str

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> "Labelled":
        return Labelled(
            texts=self.texts.take(pa.array(rows)),
            labels=self.labels.take(pa.array(rows)),
            label_column=self.label_column,
            file=self.file,
        )


def read_labelled(file: str, *, text_column: str, label_column: str) -> Labelled:
    """The texts and labels of a file. Raises UsageError if it has no such columns, or a row lacks one of the two."""
    try:
        with open_parquet(file) as parquet, translated(f"Reading {file}"):
            _check(parquet.schema_arrow, file, text_column, label_column)
            table = parquet.read(columns=[text_column, label_column], use_threads=False)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    texts, labels = plain_texts(table[text_column]), table[label_column].combine_chunks()
    _check_filled(texts, f"Row {{row}} of {file} has no text.")
    _check_filled(labels, f'Row {{row}} of {file} has no label in "{label_column}".')
    if pa.types.is_floating(labels.type):
        finite = pc.is_finite(labels)
        _check_filled(pc.if_else(finite, labels, None), f"The label of row {{row}} of {file} is not a finite number.")
    return Labelled(texts=texts, labels=labels, label_column=label_column, file=file)


def _check(schema: pa.Schema, file: str, text_column: str, label_column: str) -> None:
    for option, name in (("--text-column", text_column), ("--label-column", label_column)):
        if name not in schema.names:
            raise UsageError(
                f'{file} has no column "{name}"; it has: {", ".join(schema.names)}. Name one with {option}.'
            )
    if not is_text(schema.field(text_column).type):
        raise UsageError(f'The column "{text_column}" of {file} holds {schema.field(text_column).type}, not texts.')
    label = schema.field(label_column).type
    if not (pa.types.is_floating(label) or pa.types.is_integer(label) or pa.types.is_boolean(label) or is_text(label)):
        raise UsageError(f'The column "{label_column}" of {file} holds {label}, not numbers or texts.')


def _check_filled(values: pa.Array, message: str) -> None:
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise UsageError(f"{message.format(row=row)} Leave such rows out.")
