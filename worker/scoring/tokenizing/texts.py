"""Convert texts of any Arrow type to one plain array, and two of those to an array of pairs."""

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Texts: TypeAlias = pa.ChunkedArray | pa.Array | Sequence[str | None]


def plain_texts(texts: Texts) -> pa.LargeStringArray | pa.StructArray:
    """Invalid UTF-8, which Parquet allows, becomes U+FFFD. Raises TypeError for a single text."""
    if isinstance(texts, (str, bytes)):  # a string is a sequence too, and each of its characters would be scored
        raise TypeError(f"Expected a list of texts, not a single {type(texts).__name__}. Pass [text].")
    if not isinstance(texts, (pa.Array, pa.ChunkedArray)):
        return pa.array(texts, pa.large_string())
    if isinstance(texts, pa.StructArray):  # pairs, made of plain texts
        return texts
    column = texts.cast(pa.large_string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary()).to_pylist()
        return pa.array([text if text is None else text.decode(errors="replace") for text in raw], pa.large_string())
    return column


def pairs(firsts: pa.LargeStringArray, seconds: pa.LargeStringArray) -> pa.StructArray:
    """Pairs of texts, with the fields `first` and `second`. Null if one of the two is."""
    mask = pc.or_(pc.is_null(firsts), pc.is_null(seconds))
    return pa.StructArray.from_arrays([firsts, seconds], names=["first", "second"], mask=mask)
