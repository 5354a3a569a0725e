"""Texts in whatever a notebook has them. What is not one column of texts is a TypeError that says what to pass."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from shardsift.worker.api.texts import aligned_windows, windows

TEXTS = ["one", None, "three"]


class OnlyStream:
    """A column of another library, such as a polars Series: all that we know of it is Arrow's C stream."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._column.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("a column is not read item by item")


def texts_of(given: Any, rows: int = 8192) -> list[list[str | None]]:
    return [window.to_pylist() for window in windows(given, rows)]


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        iter(TEXTS),
        np.array(TEXTS, dtype=object),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pd.Series(TEXTS, index=[7, 8, 7]),
        pd.Series(TEXTS, dtype="category"),
        OnlyStream(pa.chunked_array([["one", None], ["three"]], pa.string_view())),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_column_of_texts_of_any_kind_is_taken(given: Any) -> None:
    assert texts_of(given) == [TEXTS]


@pytest.mark.parametrize(
    ("given", "windows"),
    [
        (np.array(["a", "b"]), [["a", "b"]]),
        (np.array(["a", "b"], dtype=np.dtypes.StringDType()), [["a", "b"]]),
        (["a", float("nan"), None, pd.NA], [["a", None, None, None]]),
        (["a\ud83d", "\ud83d\ude00", None], [["a\ufffd", "\U0001f600", None]]),  # half of a surrogate pair
        (iter([]), []),
    ],
)
def test_missing_halved_and_no_texts_are_taken_as_they_are_meant(given: Any, windows: list[list[str | None]]) -> None:
    assert texts_of(given) == windows


@pytest.mark.parametrize("given", [list("abcde"), iter("abcde"), pa.chunked_array([["a", "b", "c"], ["d", "e"]])])
def test_texts_come_in_windows(given: Any) -> None:
    assert texts_of(given, rows=2) == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("one text", r"not a single str\. Pass \[text\]"),
        (pd.DataFrame({"text": ["a"]}), r'not a DataFrame\. Pass a column, such as table\["text"\]'),
        (7, "not int"),
        (["a", 7], "row 1 holds int"),
        ([("a", "b")], r"row 0 holds tuple\. Of pairs, pass the second texts as text_pairs\."),
        (pd.Series(["a", 7], dtype=object), "row 1 holds int"),
        (pd.Series([1.0, 2.0]), "this one holds double"),
        (OnlyStream(pa.chunked_array([[{"text": "a"}]])), "this one holds struct"),
        (np.array([1, 2]), "row 0 holds int64"),
    ],
)
def test_what_is_not_one_column_of_texts_is_refused(given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        texts_of(given)


def test_second_texts_of_another_kind_are_taken_beside_the_texts() -> None:
    (pairs,) = aligned_windows(iter(TEXTS), pd.Series(["a", "b", None]), 8192)

    assert [column.to_pylist() for column in pairs] == [TEXTS, ["a", "b", None]]


@pytest.mark.parametrize(
    ("texts", "text_pairs", "says"),
    [
        (["a", "b"], ["c"], r"^texts has 2 rows and text_pairs has 1\. Pass one second text for each"),
        (["a"], iter("bcd"), "text_pairs has more rows than texts, which has 1"),
        (iter("abc"), iter("ab"), "texts has more rows than text_pairs, which has 2"),
    ],
)
def test_unequally_many_texts_and_second_texts_are_refused(texts: Any, text_pairs: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(aligned_windows(texts, text_pairs, 2))
