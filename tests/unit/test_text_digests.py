"""Equal texts have equal digests in every Arrow layout, and different texts have different ones."""

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pytest

from shardsift.fleet.run.text import row_digests, scored_digest, text_digest
from shardsift.worker.scoring.tokenizing.tokenize import plain_texts
from support.records import a_spec

TEXTS = ["one", None, "", "two", "ü" * 300]


def digest(texts: list[str | None]) -> str:
    return text_digest(plain_texts(texts))


@pytest.mark.parametrize(
    "held",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(["before", *TEXTS, "after"], pa.large_string()).slice(1, len(TEXTS)),
        pa.chunked_array([pa.array(["before", *TEXTS], pa.large_string()).slice(1)]),
        pa.LargeStringArray.from_buffers(
            5,
            pa.array([0, 3, 9, 9, 12, 612], pa.int64()).buffers()[1],
            pa.py_buffer(b"onehiddentwo" + "ü".encode() * 300).slice(0),
            pa.py_buffer(bytes([0b11101])),
        ),
    ],
)
def test_a_digest_is_the_same_however_the_texts_are_held(held: pa.Array) -> None:
    assert text_digest(plain_texts(held)) == digest(TEXTS)


@pytest.mark.parametrize(
    "others",
    [
        ["one", None, None, "two", "ü" * 300],
        ["on", None, "e", "two", "ü" * 300],
        ["two", None, "", "one", "ü" * 300],
        [*TEXTS, None],
        [],
    ],
)
def test_other_texts_have_another_digest(others: list[str | None]) -> None:
    assert digest(others) != digest(TEXTS)


@pytest.mark.parametrize(
    "scored",
    [
        {"text_columns": ("text", "other")},
        {"text_columns": ("text",), "text_pair_column": "other"},
        {"text_columns": ("text", "number"), "text_template": "{text} {number}"},
    ],
)
def test_a_digest_covers_all_columns_that_are_scored_and_no_others(scored: dict[str, Any]) -> None:
    scoring = a_spec(**scored).scorings[0]
    rows = pa.table({"text": ["a", None], "other": ["b", "c"], "number": [1, 2], "id": ["x", "y"]})
    names = {*scoring.text_columns, scoring.text_pair_column}

    for place, name in enumerate(rows.column_names):
        swapped = rows.set_column(place, name, rows[name].take([1, 0]))
        assert (scored_digest(swapped, scoring) != scored_digest(rows, scoring)) == (name in names)


def blake(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def test_the_digest_of_a_row_is_that_of_its_text_as_it_is_scored() -> None:
    rows = pa.table({"text": ["Ü", "", None], "n": [1, None, None]})

    plain, joined = (row_digests(rows, a_spec(text_columns=columns).scorings) for columns in (("text",), ("text", "n")))

    assert plain.to_pylist() == [blake("Ü".encode()), blake(b""), None]
    assert joined.to_pylist() == [blake("Ü\n\n1".encode()), blake(b""), None]


def test_the_digest_of_several_texts_of_a_row_is_that_of_their_digests() -> None:
    rows = pa.table({"text": ["a", "ab", None, "c"], "title": ["bc", "c", "d", None]})
    (scoring,) = a_spec().scorings
    other = replace(scoring, score_column="other", text_columns=("title",))

    several = row_digests(rows, [scoring, other, replace(scoring, score_column="again")])
    pair = row_digests(rows, [replace(scoring, text_pair_column="title")])

    assert several.to_pylist() == [blake(blake(b"a") + blake(b"bc")), blake(blake(b"ab") + blake(b"c")), None, None]
    assert pair == several
