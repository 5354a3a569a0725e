"""Convert a user's texts to Arrow: lists, iterators, numpy and Arrow arrays, pandas and polars columns.

Imports neither pandas nor polars.
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice, zip_longest
from typing import Any

import pyarrow as pa

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.text import is_text
from shardsift.worker.scoring.tokenizing.tokenize import plain_texts

_NOT_TEXT = (pa.ArrowInvalid, pa.ArrowTypeError)
_OF_TABLES = ("columns", "column_names")  # attributes of DataFrames, Tables and Datasets, and not of their columns
_LIKE_PAIRS = (tuple, list, dict)  # how other libraries take pairs of texts


def windows(texts: Iterable[str | None], rows: int) -> Iterator[pa.LargeStringArray]:
    """Cut the texts into arrays of `rows` texts; the last may have fewer. Raises TypeError for anything but texts.

    An iterator is not read beyond the current window. None, NaN and pandas' NA become null. Lone surrogates become
    U+FFFD.
    """
    check_is_one_column(texts)
    column = _as_arrow(texts)
    if column is None:
        yield from _windows_of_objects(texts, rows)
        return
    for first in range(0, len(column), rows):
        yield plain_texts(column.slice(first, rows))


def aligned_windows(
    texts: Iterable[str | None], text_pairs: Iterable[str | None] | None, rows: int
) -> Iterator[list[pa.LargeStringArray]]:
    """Cut the texts as `windows` does, together with second texts if there are any.

    Raises ValueError if the numbers of texts and second texts differ.
    """
    if text_pairs is None:
        yield from ([window] for window in windows(texts, rows))
        return
    check_are_columns(texts, text_pairs)
    first_row = 0
    for firsts, seconds in zip_longest(windows(texts, rows), windows(text_pairs, rows), fillvalue=()):
        if len(firsts) != len(seconds):
            ended, other = ("texts", "text_pairs") if len(firsts) < len(seconds) else ("text_pairs", "texts")
            shorter = first_row + min(len(firsts), len(seconds))
            raise ValueError(
                f"{other} has more rows than {ended}, which has {shorter:,}. Pass one second text for each."
            )
        yield [firsts, seconds]
        first_row += len(firsts)


def check_are_columns(texts: Any, text_pairs: Any) -> None:
    """Raise TypeError unless `texts` is a column and `text_pairs` is a column or None. Reads no texts.

    Raises ValueError if both lengths are known and differ.
    """
    check_is_one_column(texts)
    if text_pairs is None:
        return
    check_is_one_column(text_pairs)
    if isinstance(texts, Sized) and isinstance(text_pairs, Sized) and len(texts) != len(text_pairs):
        raise ValueError(
            f"texts has {counted(len(texts), 'row')} and text_pairs has {len(text_pairs):,}. "
            "Pass one second text for each."
        )


def check_is_one_column(texts: Any) -> None:
    """Raise TypeError for a single text, a whole table, or anything that cannot be iterated. Reads no texts."""
    kind = type(texts).__name__
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"Expected a list of texts, not a single {kind}. Pass [text].")
    if isinstance(texts, Mapping) or any(hasattr(type(texts), name) for name in _OF_TABLES):
        raise TypeError(f'Expected one column of texts, not a {kind}. Pass a column, such as table["text"].')
    if not isinstance(texts, Iterable):
        raise TypeError(f"Expected a list of texts or a column of a table, not {kind}.")


def _as_arrow(texts: Any) -> pa.Array | pa.ChunkedArray | None:
    """Convert a column to Arrow, if that needs no loop over its items. Returns None for other iterables."""
    try:
        if hasattr(texts, "__arrow_c_stream__"):  # ChunkedArray, polars, pandas
            return _checked(pa.chunked_array(texts))
        if hasattr(texts, "__arrow_c_array__") or hasattr(texts, "__arrow_array__"):
            return _checked(pa.array(texts))
    except _NOT_TEXT:  # a pandas column of objects: the loop over the objects names the first that is not a text
        return None
    return None


def _checked(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not (is_text(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"Expected a column of texts, but this one holds {column.type}.")
    return column


def _windows_of_objects(texts: Iterable[Any], rows: int) -> Iterator[pa.LargeStringArray]:
    items, first_row = iter(texts), 0
    while window := list(islice(items, rows)):
        yield _from_objects(window, first_row)
        first_row += len(window)


def _from_objects(texts: list[Any], first_row: int) -> pa.LargeStringArray:
    try:
        return _array(texts)
    except UnicodeEncodeError:
        return _array([_without_surrogates(text) for text in texts])
    except _NOT_TEXT:
        for row, text in enumerate(texts, start=first_row):
            _check_is_text(text, row)
        raise


def _array(texts: list[Any]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string(), from_pandas=True)  # from_pandas: NaN is null


def _without_surrogates(text: Any) -> Any:
    """Replace lone surrogates, which JSON can contain and UTF-8 cannot, by U+FFFD. Returns other objects unchanged."""
    if not isinstance(text, str):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_is_text(text: Any, row: int) -> None:
    try:
        _array([text])
    except _NOT_TEXT as error:
        hint = " Of pairs, pass the second texts as text_pairs." if isinstance(text, _LIKE_PAIRS) else ""
        raise TypeError(f"Expected texts, but row {row:,} holds {type(text).__name__}.{hint}") from error
