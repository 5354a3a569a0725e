"""Read the labelled texts of `worker train` from a Parquet file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fleet.columns import is_text
from fleet.errors import ShardsiftError, UsageError
from fleet.storage.errors import translated
from fleet.storage.opening import open_parquet
from worker.scoring.tokenizing.texts import plain_texts

_TEXT, _LABEL = "text", "label"


def read_labelled(file: Path) -> tuple[list[str], NDArray[np.float64]]:
    """The columns `text` and `label`. A null label is NaN. Raises UsageError if the file has no such texts and labels."""
    try:
        with open_parquet(str(file)) as parquet, translated(f"Reading {file}"):
            _check(parquet.schema_arrow, file)
            table = parquet.read(columns=[_TEXT, _LABEL], use_threads=False)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    texts = plain_texts(table[_TEXT])
    if texts.null_count:
        row = texts.is_null().index(True).as_py()
        raise UsageError(f"Row {row} of {file} has no text. Leave such rows out.")
    return texts.to_pylist(), table[_LABEL].cast(pa.float64()).to_numpy()


def _check(schema: pa.Schema, file: Path) -> None:
    if missing := [name for name in (_TEXT, _LABEL) if name not in schema.names]:
        raise UsageError(f'{file} has no column "{missing[0]}"; it has: {", ".join(schema.names)}.')
    if not is_text(schema.field(_TEXT).type):
        raise UsageError(f'The column "{_TEXT}" of {file} holds {schema.field(_TEXT).type}, not texts.')
    label = schema.field(_LABEL).type
    if not (pa.types.is_floating(label) or pa.types.is_integer(label)):
        raise UsageError(f'The column "{_LABEL}" of {file} holds {label}, not numbers.')
