"""Equal texts have equal digests in every Arrow layout, and different texts have different ones."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.scoring.tokenizing.texts import plain_texts
from worker.shard.text_digest import text_digest

TEXTS = ["one", None, "", "two", "ü" * 300]


def digest(texts: list[str | None]) -> str:
    return text_digest(plain_texts(texts))


@pytest.mark.parametrize(
    "held",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(["before", *TEXTS, "after"], pa.large_string()).slice(1, len(TEXTS)),
        pa.chunked_array([TEXTS[:2], TEXTS[2:]]),
        pa.chunked_array([pa.array(["before", *TEXTS], pa.large_string()).slice(1)]),
        pa.LargeStringArray.from_buffers(
            5,
            pa.array([0, 3, 9, 9, 12, 612], pa.int64()).buffers()[1],
            pa.py_buffer(b"onehiddentwo" + "ü".encode() * 300).slice(0),
            pa.py_buffer(bytes([0b11101])),
        ),
    ],
)
def test_it_is_the_same_however_the_texts_are_held(held: pa.Array) -> None:
    assert text_digest(plain_texts(held)) == digest(TEXTS)


@pytest.mark.parametrize(
    "others",
    [
        ["one", "", "", "two", "ü" * 300],
        ["one", None, None, "two", "ü" * 300],
        ["on", None, "e", "two", "ü" * 300],
        ["two", None, "", "one", "ü" * 300],
        TEXTS[:-1],
        [*TEXTS, ""],
        [*TEXTS, None],
        [],
    ],
)
def test_other_texts_have_another(others: list[str | None]) -> None:
    assert digest(others) != digest(TEXTS)


@given(st.lists(st.none() | st.text(max_size=3), max_size=4), st.lists(st.none() | st.text(max_size=3), max_size=4))
def test_two_lists_have_one_digest_only_if_they_are_equal(first: list[str | None], second: list[str | None]) -> None:
    assert (digest(first) == digest(second)) == (first == second)
