"""JSON Lines: every row is read as it is written, or refused by its line and field."""

import datetime
import gzip
import json
import re
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.columns import SEEN
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.line_blocks import BLOCK_BYTES
from shardsift.fleet.inputs.opening import open_input
from support.line_files import columns_of, read, read_with_bad, rows_of, write_file, write_json_lines

TEXT = (("text", "string"),)


@pytest.mark.parametrize(
    "ending", [f"{kind}{codec}" for kind in (".jsonl", ".ndjson", ".json") for codec in ("", ".gz", ".zst")]
)
def test_rows_are_read_as_they_were_written(tmp_path: Path, ending: str) -> None:
    rows = [{"id": 1, "text": 'one "quoted" \n\t\u2028 é 🙂'}, {"id": None, "text": None}]

    file = write_json_lines(tmp_path / f"a{ending}", rows)

    assert rows_of(file) == rows


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

    opened = JsonLines(partial(open, file, "rb"), None, "a.jsonl", KINDS, block_bytes=block_bytes)

    read_rows = [row for batch in opened.batches() for row in batch.to_pylist()]
    assert read_rows == [{name: row.get(name) for name, _ in KINDS} for row in rows]
    assert opened.count_rows() == len(rows)


class TestTypes:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (['"2024-02-29T00:00:00Z"', '"2024-03-01T10:00:00Z"'], "string"),
            (["1", "null", "-3"], "int64"),
            (["1", "2.5"], "double"),
            (["NaN", "-Infinity", "1"], "double"),
            (["18446744073709551615", "0"], "uint64"),
            (["true", "null"], "bool"),
            (["null"], "string"),
            (["[]", "null", '["a"]'], "list<item: string>"),
            (["[[1], []]"], "list<item: list<item: int64>>"),
            (['[{"a": 1}, {"b": "x"}]'], "list<item: struct<a: int64, b: string>>"),
            (['{"a b": {"c": [1.5]}}'], "struct<a b: struct<c: list<item: double>>>"),
        ],
    )
    def test_of_a_field(self, tmp_path: Path, values: list[str], kind: str) -> None:
        content = "".join(f'{{"text": "t", "x": {value}}}\n' for value in values)
        file = write_file(tmp_path / "a.jsonl", content.encode())

        assert columns_of(file) == (("text", "string"), ("x", kind))
        assert len(read(file)) == len(values)

    def test_a_field_that_only_later_rows_have_is_a_column(self, tmp_path: Path) -> None:
        file = write_json_lines(tmp_path / "a.jsonl", [{"text": "a"}, {"n": 1}])

        assert rows_of(file) == [{"text": "a", "n": None}, {"text": None, "n": 1}]

    @pytest.mark.parametrize(
        ("most", "other", "kind"),
        [
            ("3", "false", "int64"),
            ('"a"', "1", "string"),
            ('{"y": {"z": "a"}}', '{"y": {"z": {}}}', "struct<y: struct<z: string>>"),
            ("-1", "18446744073709551615", "int64"),
            ("1", "184467440737095516150", "int64"),
            ("0.5", "1e400", "double"),
            ("1", "[" * 600 + "]" * 600, "int64"),
            ("1", '{"\\ud800": 1}', "int64"),
        ],
    )
    def test_are_those_of_most_rows_wherever_the_others_are(
        self, tmp_path: Path, most: str, other: str, kind: str
    ) -> None:
        for place in range(3):
            values = [most, most]
            values.insert(place, other)
            file = write_file(tmp_path / "a.jsonl", "\n".join(f'{{"x": {value}}}' for value in values).encode())

            assert columns_of(file) == (("x", kind),)
            with pytest.raises(ShardError, match=f"a.jsonl, line {place + 1}: "):
                read(file)

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("[" * 600 + "]" * 600, '"x" has lists or objects more than 64 deep'),
            ("{}", '"x" has only objects without fields, which Parquet cannot hold'),
        ],
    )
    def test_that_no_column_has_are_refused(self, tmp_path: Path, value: str, problem: str) -> None:
        file = write_file(tmp_path / "a.jsonl", f'{{"x": {value}}}\n'.encode())

        with pytest.raises(ShardError, match=problem):
            columns_of(file)


class TestRowsThatDoNotFitTheRun:
    COLUMNS = (
        ("text", "string"),
        ("n", "int64"),
        ("f", "double"),
        ("b", "bool"),
        ("l", "list<item: string>"),
        ("s", "struct<a: int64, l: list<item: struct<z: int64>>>"),
        ("u", "uint64"),
    )

    @pytest.mark.parametrize(
        ("row", "problem"),
        [
            ('{"text": 3}', '"text" has a value that the run cannot read as string'),
            ('{"n": "12345"}', '"n" has a value that the run cannot read as int64'),
            ('{"n": 9223372036854775808}', '"n" has a value'),
            ('{"u": -1}', '"u" has a value that the run cannot read as uint64'),
            ('{"l": ["a", 1]}', '"l" has a value that the run cannot read as list<item: string>'),
            ('{"s": {"l": [{"z": "x"}]}}', '"s" has a value'),
            ('{"s": {"more": 1}}', '"s" has a value'),
            ('{"more": null}', '"more" is a field that the run does not have'),
            (r'{"text": "\ud800"}', "not valid JSON: half of a surrogate pair"),
            ('{"s": {"a": 1, "a": 2}}', "not valid JSON, perhaps because a field stands twice in an object"),
            ('{"f": 1e400}', "not valid JSON, perhaps because .* a number is too large"),
            ('{"text": "a"', "not valid JSON: .+"),
            ('{"text": "a"} {"text": "b"}', r"not valid JSON: Extra data \(character 15\)"),
            ("[", "not a JSON object"),
        ],
    )
    def test_are_refused_by_line_and_field(self, tmp_path: Path, row: str, problem: str) -> None:
        good = '{"text": "a", "n": 1, "f": 1, "b": true, "l": [], "s": {"a": 1}, "u": 1}\n'
        file = write_file(tmp_path / "a.jsonl", f"{good}\n{good}{row}\n{good}".encode())

        with pytest.raises(ShardError, match=f"a.jsonl, line 4: {problem}"):
            read(file, self.COLUMNS)
        rows, bad = read_with_bad(file, self.COLUMNS)
        assert list(bad) == [2]
        assert re.match(f"line 4: {problem}", str(bad[2]))
        assert "12345" not in str(bad[2])  # a value of the user's
        assert rows["n"].to_pylist() == [1, 1, None, 1]
        assert rows.slice(2, 1).to_pylist() == [dict.fromkeys(rows.schema.names)]

    def test_columns_that_only_parquet_has_are_refused(self, tmp_path: Path) -> None:
        file = write_json_lines(tmp_path / "a.jsonl", [{"text": "a"}])

        with pytest.raises(ShardError, match='a.jsonl cannot have the column "text" of the run, which is dictionary<'):
            read(file, (("text", "dictionary<values=string, indices=int32, ordered=0>"),))


class TestChosenColumns:
    ROWS = (
        b'{"edited": false, "id": 1, "text": "a", "gildings": {}, "meta": {"n": 1}}\n'
        b'{"edited": 3, "text": "b", "meta": {"n": 2}, "ups": 1}\n'
    )

    def test_others_are_left_out_whatever_they_hold(self, tmp_path: Path) -> None:
        file = write_file(tmp_path / "a.jsonl", self.ROWS)

        columns = columns_of(file, (("text", SEEN), ("ups", "double"), ("meta", SEEN)))

        assert columns == (("text", "string"), ("ups", "double"), ("meta", "struct<n: int64>"))
        assert rows_of(file, columns, only=True) == [
            {"text": "a", "ups": None, "meta": {"n": 1}},
            {"text": "b", "ups": 1.0, "meta": {"n": 2}},
        ]

    def test_others_are_left_out_also_beside_bad_rows_and_inside_of_objects(self, tmp_path: Path) -> None:
        rows = b'{"x": 1, "x": 2, "meta": {"n": 1, "m": 2}}\n{"x": ' + b"[" * 9_999 + b"]" * 9_999 + b"}\n[\n"
        file = write_file(tmp_path / "a.jsonl", rows)

        read_rows, bad = read_with_bad(file, (("meta", "struct<n: int64>"),), only=True)

        assert read_rows["meta"].to_pylist() == [{"n": 1}, None, None]
        assert list(bad) == [2]

    @pytest.mark.parametrize(
        ("column", "problem"),
        [
            ("title", 'a.jsonl has no field "title" in its first rows; it has: edited, id, text, gildings, meta, ups.'),
            ("ups:float", "'float' is not a type of --columns: string, int64, double or bool."),
        ],
    )
    def test_a_column_that_no_first_row_has_and_what_is_not_a_type_are_told(
        self, tmp_path: Path, column: str, problem: str
    ) -> None:
        file = write_file(tmp_path / "a.jsonl", self.ROWS)

        with pytest.raises(UsageError, match=problem):
            columns_of(file, (("text", SEEN), (column, SEEN)))


def test_lines_are_counted_one_at_a_time(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.jsonl", b"{}\n" * 100_000)

    with open_input(str(file), TEXT) as opened:
        tracemalloc.start()
        assert opened.count_rows() == 100_000
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert most_bytes < BLOCK_BYTES + 4 * file.stat().st_size


class TestBadRows:
    def test_a_whole_number_that_no_double_holds_is_not_rounded(self, tmp_path: Path) -> None:
        numbers = ["1.5", str(2**60), str(2**60 + 1), "1e300", "-9007199254740993", "null"]
        lines = [f'{{"n": {number}, "inner": [{{"n": {number}}}]}}' for number in numbers]
        file = write_file(tmp_path / "a.jsonl", "\n".join(lines).encode())

        rows, bad = read_with_bad(file, (("n", "double"), ("inner", "list<item: struct<n: double>>")))

        assert rows["n"].to_pylist() == [1.5, 2.0**60, None, 1e300, None, None]
        assert [(row, str(found)) for row, found in bad.items()] == [
            (row, f'line {row + 1}: "n" has a value that the run cannot read as double') for row in (2, 4)
        ]

    def test_an_object_over_several_lines_is_a_bad_row_for_each_even_if_lines_and_objects_are_equally_many(
        self, tmp_path: Path
    ) -> None:
        file = write_file(tmp_path / "a.jsonl", b'{"text": "a"} {"text": "b"}\n{"text":\n"c"}\n{"text": "d"}\n')

        rows, bad = read_with_bad(file, TEXT)

        assert rows["text"].to_pylist() == [None, None, None, "d"]
        assert {row.reason for row in bad.values()} == {"not valid JSON"}

    def test_the_name_of_a_field_is_told_in_part_if_it_is_long(self, tmp_path: Path) -> None:
        file = write_file(tmp_path / "a.jsonl", b'{"text": "a", "' + b"x" * 1_000_000 + b'": 1}\n')

        _, bad = read_with_bad(file, TEXT)

        assert len(str(bad[0])) < 250

    def test_of_other_lines_make_no_difference_to_a_row(self, tmp_path: Path) -> None:
        """A type that JSON does not have, of a run that begins with Parquet, is read by pyarrow alone."""
        columns = (("day", "timestamp[s]"), ("text", "string"))
        file = write_file(tmp_path / "a.jsonl", b'{"day": "2024-02-29"}\n[\n')

        rows, bad = read_with_bad(file, columns)

        assert rows["day"].to_pylist() == [datetime.datetime(2024, 2, 29), None]
        assert list(bad) == [1]


class TestDamage:
    @pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
    def test_a_truncated_file_is_refused(self, tmp_path: Path, ending: str) -> None:
        whole = write_json_lines(
            tmp_path / f"whole{ending}", [{"text": f"text {row}"} for row in range(1000)]
        ).read_bytes()
        for left in (0, 5, len(whole) // 2, len(whole) - 1):
            cut = tmp_path / f"cut{ending}"
            cut.write_bytes(whole[:left])

            with pytest.raises(
                ShardError,
                match=r"Reading .*cut.jsonl.*: (not a readable .* Replace it, then repeat|the file is empty, so)",
            ):
                read(cut, TEXT)

    def test_a_long_distance_zstd_file_is_told_how_to_mend(self, tmp_path: Path) -> None:
        """As the Reddit dumps are compressed. The header asks for a window of 2 GiB."""
        (tmp_path / "a.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + b"\0" * 20)

        with pytest.raises(
            ShardError, match="compressed with zstd --long. Compress it again without: zstd -dc --long=31"
        ):
            read(tmp_path / "a.jsonl.zst", TEXT)


class TestLayout:
    def test_blank_lines_a_byte_order_mark_and_other_line_ends_are_no_rows(self, tmp_path: Path) -> None:
        content = b'\xef\xbb\xbf\n{"text": "a"}\r\n\r\n \t\n  {"text": "b"}\n{"text": "c"}'
        file = write_file(tmp_path / "a.jsonl", content)

        assert [row["text"] for row in rows_of(file)] == ["a", "b", "c"]

    def test_a_gzip_file_of_nothing_has_no_rows(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b""))

        assert rows_of(tmp_path / "a.jsonl.gz", TEXT) == []

    def test_several_gzip_members_are_one_file(self, tmp_path: Path) -> None:
        content = gzip.compress(b'{"text": "a"}\n{"te') + gzip.compress(b'xt": "b"}\n')
        (tmp_path / "a.jsonl.gz").write_bytes(content)

        assert [row["text"] for row in rows_of(tmp_path / "a.jsonl.gz")] == ["a", "b"]

    @pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
    def test_an_empty_file_has_no_rows_but_says_no_columns(self, tmp_path: Path, content: bytes) -> None:
        file = write_file(tmp_path / "a.jsonl", content)

        assert rows_of(file, TEXT) == []
        with pytest.raises(ShardError, match="a.jsonl has no row with a field"):
            columns_of(file)

    def test_a_row_longer_than_the_bound_is_refused(self, tmp_path: Path) -> None:
        file = write_json_lines(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "x" * (3 << 20)}])
        limits = {"block_bytes": 1 << 20, "most_record_bytes": 1 << 20}

        with pytest.raises(
            ShardError, match="a.jsonl, line 2: a row is longer than 1 MiB. Convert the file to Parquet"
        ):
            list(JsonLines(partial(open, file, "rb"), None, "a.jsonl", TEXT, **limits).batches())
