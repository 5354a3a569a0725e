"""JSON Lines: every row is read as it is written, or refused by its line and field."""

import datetime
import gzip
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.input_file import BadRows, NotedRows
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.line_blocks import BLOCK_BYTES
from shardsift.fleet.inputs.open_input import columns_of_lines, open_input
from support.line_files import columns_of, read, read_with_bad, rows_of, write_file, write_json_lines

TEXT = (("text", "string"),)
LINE = b'{"text": "a"}\n'
SKIPPED_FRAME = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=12),
        "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=3),
        "s": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}),
    },
)
KINDS = (
    ("text", "string"),
    ("n", "int64"),
    ("f", "double"),
    ("b", "bool"),
    ("l", "list<item: string>"),
    ("s", "struct<x: int64>"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(VALUES, max_size=8),
    block_bytes=st.integers(1, 300),
    is_ascii=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\n \n"]),
)
def test_whatever_the_values_and_blocks_rows_are_what_python_wrote(
    tmp_path: Path, rows: list[dict[str, Any]], block_bytes: int, is_ascii: bool, end: str
) -> None:
    content = end.join(json.dumps(row, ensure_ascii=is_ascii) for row in rows)
    file = write_file(tmp_path / "a.jsonl", content.encode())

    opened = JsonLines(partial(open, file, "rb"), "a.jsonl", KINDS, block_bytes=block_bytes)

    read_rows = [row for batch in opened.batches() for row in batch.to_pylist()]
    assert read_rows == [{name: row.get(name) for name, _ in KINDS} for row in rows]
    assert opened.count_rows() == len(rows)

    spoilt = write_file(tmp_path / "b.jsonl", f'{content}{end}null{end}{{"more": 1}}'.encode())
    opened = JsonLines(partial(open, spoilt, "rb"), "b.jsonl", KINDS, block_bytes=block_bytes)
    beside_bad_rows = [row for batch in opened.batches(bad=BadRows()) for row in batch.to_pylist()]
    assert beside_bad_rows[: len(rows)] == read_rows


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (['"2024-02-29T00:00:00Z"', '"2024-03-01T10:00:00Z"'], "string"),
        (["NaN", "-Infinity", "1"], "double"),
        (["18446744073709551615", "0"], "uint64"),
        (["{}", "null"], "json"),
        (["[]", "[null]"], "list<item: json>"),
        (["[" * 99 + "]" * 99], "list<item: " * 65 + "json" + ">" * 65),
        ([json.dumps({str(key): 1}) for key in range(300)], "json"),
        (['{"a: b, c": 1}'], "json"),
        (['[{"a": 1}, {"b": "x"}]'], "list<item: struct<a: int64, b: string>>"),
    ],
)
def test_the_type_of_a_field_is_that_of_its_values(tmp_path: Path, values: list[str], kind: str) -> None:
    content = "".join(f'{{"text": "t", "x": {value}}}\n' for value in values)
    file = write_file(tmp_path / "a.jsonl", content.encode())

    assert columns_of(file) == (("text", "string"), ("x", kind))
    assert len(read(file)) == len(values)


@pytest.mark.parametrize(
    ("most", "other", "kind"),
    [
        ('"a"', "1", "string"),
        ('{"y": {"z": "a"}}', '{"y": {"z": {}}}', "struct<y: struct<z: string>>"),
        ("0.5", "1e400", "double"),
        ("1", "[" * 600 + "]" * 600, "int64"),
        ("1", '{"\\ud800": 1}', "int64"),
    ],
)
def test_types_are_those_of_most_rows_wherever_the_others_are(tmp_path: Path, most: str, other: str, kind: str) -> None:
    for place in range(3):
        values = [most, most]
        values.insert(place, other)
        file = write_file(tmp_path / "a.jsonl", "\n".join(f'{{"x": {value}}}' for value in values).encode())

        assert columns_of(file) == (("x", kind),)
        with pytest.raises(ShardError, match=f"a.jsonl, line {place + 1}: "):
            read(file)


def test_a_column_of_json_holds_every_value_as_text(tmp_path: Path) -> None:
    lines = '{"x": {}, "y": null}\n{"x": {"a": [1, "é"]}, "y": "text"}\n{"x": null, "y": 5}\n'
    file = write_file(tmp_path / "a.jsonl", lines.encode())

    rows = rows_of(file, (("x", "json"), ("y", "json")))

    assert rows == [{"x": "{}", "y": None}, {"x": '{"a": [1, "é"]}', "y": "text"}, {"x": None, "y": "5"}]


def test_types_are_those_of_a_sample_of_all_files(tmp_path: Path) -> None:
    values = ['{"a": null, "n": 1}', '{"a": {"x": 1}, "n": 2}', "<html>", '{"a": {"y": [0.5]}, "n": 2.5}']
    files = [write_file(tmp_path / f"{place}.jsonl", value.encode()) for place, value in enumerate(values)]

    columns = columns_of_lines([*map(str, files)])

    assert columns == (("a", "struct<x: int64, y: list<item: double>>"), ("n", "double"))


def test_fields_of_many_files_are_those_of_some_from_the_first_to_the_last(tmp_path: Path) -> None:
    files = [write_file(tmp_path / f"{place:03}.jsonl", f'{{"of_{place}": 1}}'.encode()) for place in range(600)]

    names = [name for name, _ in columns_of_lines([*map(str, files)])]

    assert len(names) == 256
    assert {"of_0", "of_599"} <= {*names}


def test_columns_that_only_parquet_has_are_refused(tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": "a"}])

    with pytest.raises(ShardError, match='a.jsonl cannot have the column "text" of the run, which is dictionary<'):
        read(file, (("text", "dictionary<values=string, indices=int32, ordered=0>"),))


def test_fields_that_the_run_does_not_have_are_left_out_and_noted(tmp_path: Path) -> None:
    lines = ['{"text": "a", "s": [{"x": 1}]}', '{"s": [{"y": 1}, {"y": 2, "z.z": 3}]}', '{"text": "b", "\\ud83d": {}}']
    lines += ['{"text": "c", "more": {"a": 1}}', f'{{"{"x" * 1_000_000}": 1}}']
    file = write_file(tmp_path / "a.jsonl", "\n".join(lines).encode())
    noted = NotedRows()

    with open_input(str(file), (("text", "string"), ("s", "list<item: struct<x: int64>>"))) as opened:
        rows = [row for batch in opened.batches(bad=noted) for row in batch.to_pylist()]

    assert rows == [
        {"text": "a", "s": [{"x": 1}]},
        {"text": None, "s": [{"x": None}, {"x": None}]},
        {"text": None, "s": None},
        {"text": "c", "s": None},
        {"text": None, "s": None},
    ]
    assert list(noted) == [2]
    assert noted.left_out == {1: ('s[]."z.z"', "s[].y"), 3: ("more",), 4: ("x" * 100,)}


def test_fields_that_were_not_chosen_are_left_out_beside_bad_rows_and_inside_of_objects(tmp_path: Path) -> None:
    rows = b'{"x": 1, "x": 2, "meta": {"n": 1, "m": 2}}\n{"x": ' + b"[" * 9_999 + b"]" * 9_999 + b"}\n[\n"
    file = write_file(tmp_path / "a.jsonl", rows)

    read_rows, bad = read_with_bad(file, (("meta", "struct<n: int64>"),), only=True)

    assert read_rows["meta"].to_pylist() == [{"n": 1}, None, None]
    assert list(bad) == [2]


def test_lines_are_counted_one_at_a_time(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.jsonl", b"{}\n" * 100_000)

    with open_input(str(file), TEXT) as opened:
        tracemalloc.start()
        assert opened.count_rows() == 100_000
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert most_bytes < BLOCK_BYTES + 4 * file.stat().st_size


def test_a_whole_number_that_no_double_holds_is_not_rounded(tmp_path: Path) -> None:
    numbers = ["1.5", str(2**60), str(2**60 + 1), "1e300", "-9007199254740993", "null"]
    lines = [f'{{"n": {number}, "inner": [{{"n": {number}}}]}}' for number in numbers]
    file = write_file(tmp_path / "a.jsonl", "\n".join(lines).encode())

    rows, bad = read_with_bad(file, (("n", "double"), ("inner", "list<item: struct<n: double>>")))

    assert rows["n"].to_pylist() == [1.5, 2.0**60, None, 1e300, None, None]
    assert [str(found) for found in bad.values()] == [
        "line 3: n is 1152921504606846977, not double",
        "line 5: n is -9007199254740993, not double",
    ]


def test_an_object_over_several_lines_is_a_bad_row_for_each_even_if_there_are_as_many_objects(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.jsonl", b'{"text": "a"} {"text": "b"}\n{"text":\n"c"}\n{"text": "d"}\n')

    rows, bad = read_with_bad(file, TEXT)

    assert rows["text"].to_pylist() == [None, None, None, "d"]
    assert {row.reason for row in bad.values()} == {"not valid JSON"}


def test_a_row_is_the_same_beside_bad_rows(tmp_path: Path) -> None:
    """A type that JSON does not have, of a run that begins with Parquet, is read by pyarrow alone."""
    columns = (("day", "timestamp[s]"), ("text", "string"))
    file = write_file(tmp_path / "a.jsonl", b'{"day": "2024-02-29"}\n[\n')

    rows, bad = read_with_bad(file, columns)

    assert rows["day"].to_pylist() == [datetime.datetime(2024, 2, 29), None]
    assert list(bad) == [1]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param(SKIPPED_FRAME + pa.compress(LINE, "zstd", asbytes=True), 1, id="as pzstd and seekable zstd write"),
        pytest.param(gzip.compress(LINE) + b"\0" * 1_000, 1, id="as tar, tapes and some object stores pad files"),
        pytest.param(gzip.compress(LINE[:5]) + gzip.compress(LINE[5:] + LINE), 2, id="of several members"),
        pytest.param(gzip.compress(b""), 0, id="of nothing"),
    ],
)
def test_compressed_parts_with_or_without_gaps_are_one_file(tmp_path: Path, content: bytes, rows: int) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)

    assert rows_of(tmp_path / "a.jsonl", TEXT) == [{"text": "a"}] * rows


def test_a_long_distance_zstd_file_is_reported_with_a_command_that_repairs_it(tmp_path: Path) -> None:
    """As the Reddit dumps are compressed. The header asks for a window of 2 GiB."""
    (tmp_path / "a.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + b"\0" * 20)

    with pytest.raises(ShardError, match="compressed with zstd --long. Compress it again without: zstd -dc --long=31"):
        read(tmp_path / "a.jsonl.zst", TEXT)


def test_blank_lines_a_byte_order_mark_and_other_line_ends_are_no_rows(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf\n{"text": "a"}\r\n\r\n \t\n  {"text": "b"}\n{"text": "c"}'
    file = write_file(tmp_path / "a.jsonl", content)

    assert [row["text"] for row in rows_of(file)] == ["a", "b", "c"]


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_rows_but_says_no_columns(tmp_path: Path, content: bytes) -> None:
    file = write_file(tmp_path / "a.jsonl", content)

    assert rows_of(file, TEXT) == []
    with pytest.raises(ShardError, match="a.jsonl has no row with a field"):
        columns_of(file)


def test_a_row_longer_than_the_bound_is_refused(tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "x" * (3 << 20)}])
    limits = {"block_bytes": 1 << 20, "most_record_bytes": 1 << 20}

    with pytest.raises(ShardError, match="a.jsonl, line 2: a row is longer than 1 MiB. Convert the file to Parquet"):
        list(JsonLines(partial(open, file, "rb"), "a.jsonl", TEXT, **limits).batches())
