"""The filter keeps the rows that SQL selects, and refuses conditions that use more than one row."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.filter import Filter, compared_with

QUICK = settings(max_examples=30, deadline=None)  # each example opens a database
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("Language", pa.string()),
        ("meta", pa.struct([("site", pa.struct([("host", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("row", pa.int64()),
        ("fetched", pa.timestamp("us", tz="UTC")),
        ("score", pa.float32()),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"text": "a", "Language": "en", "score": 4.0, "row": 9, "tags": ["x"], "meta": {"site": {"host": "a.org"}}},
        {"text": "b", "Language": "de", "score": 1.0, "row": 8, "tags": [], "meta": {"site": {"host": "b.org"}}},
        {"text": "c", "Language": "en", "score": None, "row": 7, "tags": None, "meta": None},
        {"text": "d", "Language": None, "score": 3.0, "row": 6, "tags": ["x", "y"], "meta": {"site": None}},
    ],
    schema=SCHEMA,
)


def kept(where: str, rows: pa.Table = ROWS) -> list[int]:
    return Filter(where, rows.schema).keep(rows).tolist()


def refusal(where: str, schema: pa.Schema = SCHEMA) -> str:
    with pytest.raises(UsageError) as refused:
        Filter(where, schema)
    return str(refused.value)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("score >= 3", [0, 3]),
        ("not (score >= 0)", []),
        ("score >= 3 and text <> 'a'", [3]),
        ("list_contains(tags, 'x')", [0, 3]),
        ("SCORE >= 3", [0, 3]),  # columns are found in any case
        ("rows.Score >= 3", [0, 3]),
        ("score >= 3 -- good ones", [0, 3]),
        ("rows.meta.site.host = 'b.org'", [1]),
        ("row >= 8", [0, 1]),  # a column of the user's
        ("case when \"Language\" = 'en' then score >= 3 else score >= 1 end", [0, 1, 3]),
    ],
)
def test_rows_for_which_a_condition_is_true_are_kept_in_order(where: str, rows: list[int]) -> None:
    assert kept(where) == rows


@pytest.mark.parametrize("name", ["number of the row", "rows", "ROWID", "column0", "filename", "a.b", 'x"y', "score "])
def test_a_column_of_any_name_is_the_users(name: str) -> None:
    table = pa.table({name: [1, 5, 3], "score": [0.0, 1.0, 2.0]})
    quoted = name.replace('"', '""')

    assert kept(f'"{quoted}" >= 3', table) == [1, 2]
    assert kept("score > 1", table) == [2]


def test_an_object_called_as_the_table_is_the_users() -> None:
    table = pa.table({"rows": [{"at": 1}, {"at": 2}], "x": [1, 2]})

    assert kept("rows.at = 2", table) == [1]
    assert kept("rows.x = 1 and rows.rows.at = 1", table) == [0]


def test_columns_that_a_condition_does_not_name_may_hold_anything() -> None:
    table = ROWS.append_column("odd", pa.array([{}] * 4, pa.struct([])))

    assert kept("score >= 3", table) == [0, 3]


def test_a_table_in_many_pieces_is_numbered_as_one() -> None:
    table = pa.concat_tables([ROWS] * 5_000)

    assert kept("score >= 3", table) == [at for row in range(0, len(table), 4) for at in (row, row + 3)]


def test_the_hour_of_a_time_is_utc_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    table = pa.table({"fetched": pa.array([datetime(2024, 3, 1, 23, tzinfo=UTC)], SCHEMA.field("fetched").type)})

    assert kept("hour(fetched) = 23", table) == [0]


@QUICK
@given(scores=st.lists(st.floats(-10, 10, width=32) | st.none(), max_size=40), hundredths=st.integers(-1200, 1200))
def test_a_threshold_keeps_what_numpy_keeps(scores: list[float | None], hundredths: int) -> None:
    threshold = hundredths / 100
    nearest = np.float32(threshold)  # differs from the threshold by less than a float32 can represent
    numbers = np.array(
        [
            *(np.nan if score is None else score for score in scores),
            nearest,
            *np.nextafter(nearest, [-np.inf, np.inf], dtype=np.float32),
        ],
        dtype=np.float32,
    )
    table = pa.table({"score": pa.array(numbers, mask=np.isnan(numbers))})

    assert kept(f'"score" >= {threshold}', table) == np.flatnonzero(numbers >= threshold).tolist()


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("score >= 3) union select 1 where (true", " cannot be used: "),
        ("score >= 3); copy rows to 'out.csv' --", " cannot be used: "),
        ("score >= ?", " cannot be used: "),
        ("score >=", " cannot be used: "),
        ("score >= 3 /*", " cannot be used: "),
        ("", " cannot be used: "),
        ('text = "en"', "and a text is written 'en'"),
        ("score >= (select avg(score) from rows)", "a subquery or window function"),
        ("text in (select content from read_text('/etc/passwd'))", "a subquery or window function"),
        ("row_number() over () <= 10", "a subquery or window function"),
        ("random() < 0.5", "random() does not give the same answer"),
        ("now() > fetched", "now() does not give the same answer"),
        ("version() = 'v1'", "version() does not give the same answer"),
        ("current_date > '2024-01-01'", 'there is no column "current_date"'),
        ("COLUMNS(*) > 3", "it names all columns by a star"),
        ("read_text('/etc/passwd') is not null", "read_text"),
        ("score", "it is FLOAT, not true or false"),
        ("null", "not true or false"),
        ("score >= 'three'", "Could not convert string 'three'"),
        ("no_such_function(score) > 3", "no_such_function"),
        ("count(*) > 3", "cannot contain aggregates"),
        ("unnest(tags) = 'x'", "UNNEST"),
    ],
)
def test_what_is_no_condition_on_one_row_is_refused_before_any_row_is_seen(where: str, reason: str) -> None:
    assert reason in refusal(where)


@pytest.mark.parametrize(
    "where",
    [
        "scores >= 3",
        "rowid < 5",
        '"a.b" = 1',
        "meta.site = 'x' and host = 'a.org'",
        "len(list_filter(tags, t -> t = 'x')) > 0",
    ],
)
def test_an_unknown_column_is_reported_with_those_there_are(where: str) -> None:
    assert "there are: text, Language, meta, tags, row, fetched, score" in refusal(where)


def test_a_name_that_two_columns_share_but_for_case_is_refused() -> None:
    schema = pa.schema([("Score", pa.string()), ("score", pa.float32())])

    assert '"score" names several columns' in refusal("score >= 3", schema)


def test_an_error_that_only_a_row_shows_is_reported_as_one_of_the_condition() -> None:
    condition = Filter("text::int > 3", SCHEMA)

    with pytest.raises(UsageError, match="Could not convert string 'a'"):
        condition.keep(ROWS)


def test_a_condition_that_takes_too_long_is_interrupted() -> None:
    rows = pa.table({"text": ["abcdefgh"] * 50_000})
    slow = Filter("levenshtein(repeat(text, 50), repeat(text, 60)) > 3", rows.schema, seconds=1)

    with pytest.raises(UsageError, match=r"it took longer than 1 s for 50,000 rows; make it simpler"):
        slow.keep(rows)

    assert slow.keep(rows.slice(0, 1)).tolist() == [0]


def test_a_condition_that_needs_too_much_memory_is_refused() -> None:
    rows = pa.table({"row": [30_000_000]})
    large = Filter("len(list_sort(range(row))) > 3", rows.schema, memory_mib=64)

    with pytest.raises(UsageError, match="it needs more than 64 MiB of memory for one row; make it"):
        large.keep(rows)


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("language = 'en'", {"en"}),
        ("'en' <> rows.LANGUAGE and score > 3", {"en"}),
        ("Language IN ('en', 'de') OR language NOT IN ('fr')", {"en", "de", "fr"}),
        ("language IN ['en', text]", {"en"}),
        ("language IS DISTINCT FROM 'en'::varchar", {"en"}),
        ("CASE language WHEN 'en' THEN score > 1 WHEN 'de' THEN true END", {"en", "de"}),
        ("language = 5", {"5"}),
        ("language = NULL", set()),
        ("language = text or text = 'en'", set()),
        ("language > 'en' or language like 'e%' or contains(language, 'e') or lower(language) = 'en'", set()),
    ],
)
def test_the_values_that_a_condition_compares_a_column_with_are_known(where: str, values: set[str]) -> None:
    Filter(where, SCHEMA)

    assert compared_with(where, "Language") == values
