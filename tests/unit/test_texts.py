"""The text of a row: one column, several joined, or a template. What a column lacks leaves no trace. And `--columns`."""

from typing import Any

import pyarrow as pa
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.choices import passages_and_pool
from shardsift.fleet.run.scoring import ZeroShot, check_scoring
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.run.text import chosen_columns, text_columns, texts_of
from shardsift.producer.planning.options import RunOptions
from support.records import a_spec

SHARD = Shard(name="s", uri="s.parquet", identity="1")
POSTS = pa.table(
    {
        "title": ["A title", "Only a title", "Only a title", "", None, " "],
        "selftext": ["A body", None, " \n", "Only a body", None, None],
        "score": [3, 4, None, 5, None, 7],
        "url": pa.array(["u1", "u2", "u3", "u4", None, "u6"]).dictionary_encode(),
    }
)


def texts(columns: tuple[str, ...], template: str | None = None, rows: pa.Table = POSTS) -> list[str | None]:
    (scoring,) = a_spec(text_columns=columns, text_template=template).scorings
    return list(texts_of(rows, scoring).to_pylist())


def test_one_column_is_its_text_and_several_are_joined_without_the_blank_ones() -> None:
    assert texts(("selftext",)) == POSTS["selftext"].to_pylist()
    joined = texts(("title", "selftext"))
    assert joined == ["A title\n\nA body", "Only a title", "Only a title", "Only a body", None, " "]


def test_a_template_is_filled_with_columns_of_any_type() -> None:
    filled = texts(("url", "title", "score"), "{{{url}}} {title} ({score})")

    assert filled[:3] == ["{u1} A title (3)", "{u2} Only a title (4)", "{u3} Only a title ()"]
    assert filled[4] is None
    assert filled[5] == "{u6}   (7)"


@pytest.mark.parametrize("template", ["{title}", "{title}{title}", "before {title}", "{title} after"])
def test_a_template_equals_pythons_own(template: str) -> None:
    rows = POSTS.slice(0, 4)

    assert texts(("title",), template, rows) == [template.format(title=title) for title in rows["title"].to_pylist()]


def test_texts_do_not_depend_on_how_the_rows_are_chunked() -> None:
    chunked = pa.concat_tables([POSTS.slice(0, 2).unify_dictionaries(), POSTS.slice(2)])

    assert texts(("title", "selftext"), rows=chunked) == texts(("title", "selftext"))
    assert texts(("url", "score"), "{url} {score}", chunked) == texts(("url", "score"), "{url} {score}")


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"text_column": "title"}, ("title",)),
        ({"text_column": "title,selftext"}, ("title", "selftext")),
        ({"text_column": "a,b"}, ("a,b",)),
        ({"text_column": "{score}: {title} {title}"}, ("score", "title")),
    ],
)
def test_columns_are_found_by_name(options: dict[str, Any], columns: tuple[str, ...]) -> None:
    schema = POSTS.append_column("a,b", POSTS["title"]).schema

    assert text_columns(RunOptions(**options), schema, SHARD.uri, called=f"Shard {SHARD.name}") == columns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"text_column": "title,body"}, r'Shard s has no column "body"; it has: title, .*Name one with'),
        ({"text_column": "score"}, 'The column "score" holds int64, not text'),
        ({"text_column": " , "}, "--text-column is empty"),
        ({"text_column": "{tags}"}, 'The column "tags" holds list<.*>, not text'),
        ({"text_column": "{{no column}}"}, "--text-column names no column, like {text}; it is '{{no column}}'"),
        ({"text_column": "{title"}, "--text-column '{title' cannot be read: expected '}'"),
        ({"text_column": "{}"}, "--text-column takes only names of columns in braces"),
    ],
)
def test_what_cannot_be_read_is_refused(options: dict[str, Any], says: str) -> None:
    schema = POSTS.append_column("tags", pa.array([[]] * len(POSTS), pa.list_(pa.string()))).schema

    with pytest.raises(UsageError, match=says) as refused:
        text_columns(RunOptions(**options), schema, SHARD.uri, called=f"Shard {SHARD.name}")

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("passages", ["head", "head+tail", "head+middle+tail", "stride:256", "finepdfs"])
def test_passages_are_known_by_name_and_pooled_by_max_or_mean(passages: str) -> None:
    check_scoring(*a_spec(passages=passages).scorings)
    assert passages_and_pool(passages) == (passages, "max")
    assert passages_and_pool(f"{passages}:mean") == (passages, "mean")


@pytest.mark.parametrize("passages", ["", "tail", "stride", "stride:0", "stride:-1", "stride:x", "head+head"])
def test_other_passages_are_refused(passages: str) -> None:
    with pytest.raises(UsageError, match=r"--passages must be head, head\+tail, .*stride:N or finepdfs, not"):
        check_scoring(*a_spec(passages=passages).scorings)


def test_passages_that_leave_out_tokens_or_do_not_go_with_labels_are_refused() -> None:
    labels = ZeroShot(labels=("a",))
    check_scoring(*a_spec(passages="head+tail", zero_shot=labels).scorings)

    with pytest.raises(UsageError, match="--passages finepdfs does not go with --labels"):
        check_scoring(*a_spec(passages="finepdfs", zero_shot=labels).scorings)
    with pytest.raises(UsageError, match="--passages stride:17 would leave out tokens between passages of 16"):
        check_scoring(*a_spec(max_tokens=16, passages="stride:17").scorings)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (None, None),
        ("text", (("text", ""),)),
        (" id , ups:int64,", (("id", ""), ("ups", "int64"))),
        ("a:b:string,c:d,:string", (("a:b", "string"), ("c:d", ""), (":string", ""))),
    ],
)
def test_names_have_types_if_they_say_so(text: str | None, columns: object) -> None:
    assert chosen_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "problem"), [(" , ", "--columns is empty"), ("a,b,a:bool", '--columns names "a" twice')]
)
def test_what_names_no_columns_is_reported(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        chosen_columns(text)
