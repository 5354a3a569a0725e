"""Parquet: rows are read as they are written, in the run's order of columns, and a row that no reader can decode is a bad one."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.run.output_columns import describe_columns, kept_schema
from support.line_files import columns_of, read, read_with_bad
from support.records import a_spec

TEXT, VIEW = pa.string(), pa.string_view()
ELEMENT = pa.field("element", TEXT)
LONG = "a text that is longer than twelve bytes"


def not_utf8(kind: pa.DataType) -> pa.Array:
    """Three texts, of which the second is none."""
    binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
    return pa.array([b"one", b"\xff", b"three"], binary).view(kind)


def parquet(folder: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


COLUMNS = {
    "text": not_utf8(TEXT),
    "large text": not_utf8(pa.large_string()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), not_utf8(TEXT)),
    "categories of pandas": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2], pa.int8()), not_utf8(TEXT), ordered=True
    ),
    "object": pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 3], not_utf8(TEXT))], names=["x"]),
    "map": pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), not_utf8(TEXT)),
}


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_a_row_with_bytes_that_are_no_unicode_is_bad_and_can_be_read_as_null(tmp_path: Path, values: pa.Array) -> None:
    file = parquet(tmp_path, id=pa.array([1, 2, 3]), x=values, y=pa.array(["é", "ü", None]))

    rows, bad = read_with_bad(file, columns_of(file))

    assert [(place, str(row), row.reason) for place, row in bad.items()] == [
        (1, 'row 1: "x" is not UTF-8', "not UTF-8")
    ]
    assert rows["id"].to_pylist() == [1, None, 3]
    assert rows["y"].to_pylist() == ["é", None, None]
    assert rows["x"].to_pylist()[1] is None
    assert rows["x"].type == values.type
    pq.write_table(rows, tmp_path / "again.parquet")
    assert pq.read_table(tmp_path / "again.parquet")["x"].is_null().to_pylist() == [False, True, False]
    with pytest.raises(ShardError, match='a.parquet, row 1: "x" is not UTF-8. Store bytes in a binary column.'):
        read(file)


def test_bytes_and_times_that_python_does_not_have_are_no_bad_rows(tmp_path: Path) -> None:
    midnight = pa.array([86_400], pa.int32()).view(pa.time32("s"))
    file = parquet(tmp_path, x=pa.array([b"\xff"]), t=midnight, d=pa.array([1 << 61], pa.timestamp("ms")))

    rows, bad = read_with_bad(file, columns_of(file))

    assert bad == {}
    assert rows["x"].to_pylist() == [b"\xff"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_time_of_spark_or_hive_is_what_it_was_whatever_its_year(tmp_path: Path, nested: bool) -> None:
    times = [datetime.datetime(year, 12, 31, 1, 2, 3, 456_789) for year in (1, 1677, 2024, 2263, 9999)]
    values = [[{"t": time}] for time in times] if nested else times
    unit = pa.timestamp("us")
    column = pa.array(values, pa.list_(pa.struct([("t", unit)])) if nested else unit)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column}), file, use_deprecated_int96_timestamps=True, store_schema=False)

    assert read(file)["x"].to_pylist() == values


def test_a_file_with_fewer_rows_than_its_footer_says_is_not_read_to_the_end(tmp_path: Path) -> None:
    file = parquet(tmp_path, text=pa.array([f"text {number}" for number in range(77)]))
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    rows, more = b"\x9a\x01", b"\x9e\x01"  # 77 and 79 as varints
    file.write_bytes(content[:footer] + content[footer:].replace(rows, more))

    with pytest.raises(ShardError, match=r"a\.parquet is damaged, .*: 2 of the rows that its footer counts are"):
        read(file)


def test_columns_come_in_the_runs_order_and_others_last(tmp_path: Path) -> None:
    file = parquet(tmp_path, more=pa.array([0]), text=pa.array(["a"]), x=pa.array([datetime.date(2024, 2, 29)]))

    with open_input(str(file), (("x", "date32[day]"), ("gone", "string"), ("text", "string"))) as opened:
        (batch,) = opened.batches()
        (chosen,) = opened.batches(["text", "x"])

    assert opened.schema.names == batch.schema.names == ["x", "text", "more"]
    assert batch.to_pylist() == [{"x": datetime.date(2024, 2, 29), "text": "a", "more": 0}]
    assert chosen.schema.names == ["text", "x"]


@pytest.mark.parametrize(
    ("written", "plain", "value"),
    [
        (VIEW, TEXT, LONG),
        (pa.list_(VIEW, 2), pa.list_(ELEMENT, 2), [LONG, LONG]),
        (pa.struct([("a", pa.list_(VIEW))]), pa.struct([("a", pa.list_(ELEMENT))]), {"a": [LONG]}),
        (pa.map_(VIEW, VIEW), pa.map_(TEXT, TEXT), [(LONG, LONG)]),
    ],
)
def test_views_are_read_as_the_plain_types_that_are_the_same_in_parquet(
    tmp_path: Path, written: pa.DataType, plain: pa.DataType, value: Any
) -> None:
    file = parquet(tmp_path, x=pa.array([value, None], written))

    rows = read(file)

    assert rows.schema.field("x").type == plain
    assert rows.take([1, 0])["x"].to_pylist() == [None, value]


class Counted(AbstractFileSystem):
    """A file on a far machine, which counts the bytes that are fetched of it."""

    protocol, cachable = "counted", False
    content = b""
    fetched = 0

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(self.content), "type": "file"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> AbstractBufferedFile:
        return CountedFile(self, path, mode, **options)


class CountedFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        found = Counted.content[start:end]
        Counted.fetched += len(found)
        return found


def test_a_remote_file_is_fetched_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads read its columns in any order. Only the block with the footer is fetched twice."""
    rng, sink = np.random.default_rng(0), pa.BufferOutputStream()
    rows = pa.table({f"column {number}": rng.random(1_000_000) for number in range(12)})
    pq.write_table(rows, sink, row_group_size=20_000, use_dictionary=False)
    monkeypatch.setattr(Counted, "content", sink.getvalue().to_pybytes())
    fsspec.register_implementation("counted", Counted, clobber=True)

    with open_input("counted://a.parquet") as file:
        read_rows = sum(batch.num_rows for batch in file.batches())

    assert read_rows == len(rows)
    assert Counted.fetched <= 1.1 * len(Counted.content)


LISTS = pa.array([[1], None], pa.large_list(pa.int32()))
OBJECTS = pa.array([{"a": 1, "b": None}, {"a": 2, "b": "x"}])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.nulls(2), "list<element: struct<a: int64>>"),
        (pa.array([1, None], pa.int32()), "int64"),
        (pa.array([1, 2**40]), "double"),
        (pa.array(["a", None], pa.large_string()), "string"),
        (pa.array(["a", None]).dictionary_encode(), "large_string"),
        (pa.array(["a", None]).dictionary_encode(), "dictionary<values=large_string, indices=int8, ordered=1>"),
        (pa.array([[Decimal("1.5")], None], pa.list_(pa.decimal128(3, 1))), "list<element: decimal256(40, 2)>"),
        (pa.array([datetime.time(1), None], pa.time32("s")), "time64[us]"),
        (LISTS, "list<element: int64>"),
        (
            pa.array([[("k", {"a": 1, "b": "x"})], None], pa.map_(TEXT, OBJECTS.type)),
            "map<string, struct<b: string, a: int64>>",
        ),
    ],
)
def test_values_that_the_run_has_in_another_type_are_read_in_it(tmp_path: Path, values: pa.Array, kind: str) -> None:
    rows = read(parquet(tmp_path, x=values), (("x", kind),))

    assert str(rows["x"].type) == kind
    assert rows["x"].to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, 2]), "int32"),
        (pa.array([1, 2]), "string"),
        (pa.array([1.0, None]), "int64"),
        (pa.array([b"a", b"b"]), "string"),
        (pa.array([Decimal("1.5")]), "decimal128(2, 2)"),
        (pa.array([datetime.timedelta(1)], pa.duration("us")), "duration[s]"),
        (OBJECTS, "struct<b: string, c: int64>"),
    ],
)
def test_values_that_might_change_keep_their_type(tmp_path: Path, values: pa.Array, kind: str) -> None:
    assert read(parquet(tmp_path, x=values), (("x", kind),))["x"].type == values.type


def test_a_whole_number_that_is_no_fraction_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"a value that the run's types do not hold: .* 9007199254740993 not in range"):
        read(parquet(tmp_path, x=pa.array([2**53 + 1])), (("x", "double"),))


def test_a_text_of_a_dictionary_that_is_no_unicode_is_bad_in_a_run_of_plain_texts(tmp_path: Path) -> None:
    rows, bad = read_with_bad(parquet(tmp_path, x=COLUMNS["dictionary"]), (("x", "string"),))

    assert [*bad] == [1]
    assert rows["x"].to_pylist() == ["one", None, "three"]


def not_null(name: str, kind: pa.DataType, field_id: str = "7") -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": field_id})


MAP, LIST = pa.map_(TEXT, pa.int64()), pa.list_(ELEMENT)
SECONDS, WARSAW = pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Warsaw")


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        (MAP, pa.map_(pa.field("k", TEXT, nullable=False), not_null("v", pa.int64())), [("a", 1)]),
        (MAP, pa.map_(pa.large_string(), pa.int32()), [("a", 1)]),
        (MAP, pa.map_(VIEW, pa.int64(), keys_sorted=True), [("a", 1)]),
        (LIST, pa.list_(not_null("array", TEXT)), ["a"]),
        (pa.list_(not_null("item", pa.large_string())), pa.list_(VIEW), ["a", None]),
        (LIST, pa.large_list(TEXT), ["a"]),
        (LIST, pa.list_(pa.dictionary(pa.int8(), TEXT)), ["a", None]),
        (pa.list_(TEXT, 2), pa.list_(not_null("x", VIEW), 2), ["a", "b"]),
        (pa.struct([not_null("a", LIST)]), pa.struct([("a", pa.large_list(VIEW))]), {"a": ["x", None]}),
        (pa.struct([("a", WARSAW)]), pa.struct([not_null("a", SECONDS)]), {"a": datetime.datetime(2024, 1, 1)}),
    ],
    ids=str,
)
def test_a_type_is_the_runs_at_every_level(tmp_path: Path, first: pa.DataType, later: pa.DataType, value: Any) -> None:
    """So that shards whose columns are described alike can be merged."""
    pq.write_table(pa.table({"x": pa.nulls(1, first)}), tmp_path / "first.parquet")
    pq.write_table(pa.table({"x": pa.array([value, None], later)}), tmp_path / "b.parquet")
    spec = a_spec(columns=columns_of(tmp_path / "first.parquet"), target_file_bytes=1 << 20)

    rows = read(tmp_path / "b.parquet", spec.columns)

    merged = kept_schema(read(tmp_path / "first.parquet").schema, spec)
    assert describe_columns(rows.schema) == spec.columns
    assert kept_schema(rows.schema, spec).equals(merged, check_metadata=True)
    assert rows.cast(pa.schema([merged.field("x")]))["x"].to_pylist()[1] is None


CATEGORY = pa.dictionary(pa.int32(), TEXT)


@pytest.mark.parametrize("row_group_rows", [1, 100])
@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        (pa.list_(CATEGORY), lambda text: [text, None]),
        (pa.struct([("a", CATEGORY)]), lambda text: {"a": text}),
        (pa.struct([("a", pa.struct([("b", pa.large_list(CATEGORY))]))]), lambda text: {"a": {"b": [text]}}),
        (pa.map_(TEXT, CATEGORY), lambda text: [("k", text)]),
    ],
    ids=["list", "struct", "list in structs", "map"],
)
def test_a_dictionary_inside_another_type_is_read_whatever_its_pieces(
    tmp_path: Path, kind: pa.DataType, nested: Callable[[str], Any], row_group_rows: int
) -> None:
    values = [nested(f"{place} {'x' * 30_000}") for place in range(60)]  # more than one page's dictionary
    times = pa.array([1] * 60, pa.timestamp("us", "Asia/Tokyo"))
    rows = pa.table({"x": pa.array(values, kind), "t": times, "top": pa.array(["a"] * 60).dictionary_encode()})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=row_group_rows)

    found = read(tmp_path / "a.parquet")

    assert found["x"].to_pylist() == values
    assert found.select(["t", "top"]).equals(rows.select(["t", "top"]))
    assert "dictionary" not in str(found["x"].type)
