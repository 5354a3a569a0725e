"""JSON Lines and CSV alike: bad rows move no other row, and files may be compressed and have other columns than a run."""

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.columns import SEEN
from shardsift.fleet.inputs.csv_file import CsvFile
from shardsift.fleet.inputs.input_file import BadRows
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.line_blocks import BLOCK_BYTES, LineRows
from support.line_files import columns_of, read, read_with_bad, rows_of, write_csv, write_file, write_json_lines

COLUMNS = (("id", "int64"), ("text", "string"))
BAD_LINES = [
    b"null\n",
    b"[\n",
    b'{"text": 1}\n',
    b'{"text": "\xff"}\n',
    b'{"text": "\\ud800"}\n',
    b'{"text": "a"} {}\n',
    b'{"text":\n',
    b"}\n",
    b"{\n",
]
BAD_RECORDS = [b"1\n", b"1,2,3\n", b"x,1\n", b'1,"\n\xff"\n', b'1,a "b" c\n', b"1,a\rb\n", b'"",1\n', b"\xff\n"]


def json_line(row: int) -> bytes:
    return json.dumps({"id": row, "text": f"t\n{row}"}).encode() + b"\n"


def csv_record(row: int) -> bytes:
    return f'{row},"t\n{row}"\n'.encode()


@pytest.mark.parametrize(
    ("kind", "header", "good", "bad_ones"),
    [(JsonLines, b"", json_line, BAD_LINES), (CsvFile, b"id,text\n", csv_record, BAD_RECORDS)],
)
def test_bad_rows_of_many_are_found_wherever_they_are(
    tmp_path: Path, kind: type[LineRows], header: bytes, good: Callable[[int], bytes], bad_ones: list[bytes]
) -> None:
    choice = random.Random(1)
    content, expected, lines = header, [], []
    for row in range(2_000):
        is_bad = choice.random() < 0.1
        lines.append(content.count(b"\n") + 1)
        content += choice.choice(bad_ones) if is_bad else good(row)
        expected.append(None if is_bad else row)
    file = write_file(tmp_path / "a", content)

    for block_bytes in (40, 1_000, BLOCK_BYTES):
        opened = kind(partial(open, file, "rb"), "a", COLUMNS, block_bytes=block_bytes)
        bad: BadRows = {}
        rows = [row for batch in opened.batches(bad=bad) for row in batch.to_pylist()]

        assert [row["id"] for row in rows] == expected
        assert [row["text"] for row in rows] == [None if row is None else f"t\n{row}" for row in expected]
        assert {row: bad[row].position for row in bad} == {
            row: f"line {lines[row]:,}" for row, value in enumerate(expected) if value is None
        }
        assert opened.count_rows() == len(expected)


OF_JSON = (
    ("text", "string"),
    ("n", "int64"),
    ("f", "double"),
    ("b", "bool"),
    ("l", "list<item: string>"),
    ("s", "struct<a: int64, l: list<item: struct<z: int64>>>"),
    ("u", "uint64"),
)
GOOD_LINE = '{"text": "a", "n": 1.0, "f": 1, "b": true, "l": [], "s": {"a": 1}, "u": 1}\n'
AROUND = {  # a bad row: the columns of the run, and the good rows before and after it
    "a.jsonl": (OF_JSON, f"{GOOD_LINE}\n{GOOD_LINE}", GOOD_LINE),
    "a.csv": (COLUMNS, 'id,text\r\n1,"two\nlines"\n\n', "2,b\n"),
}
UNFIT_LINES = [
    ('{"text": 3}', "text is 3, not string"),
    ('{"n": 9223372036854775808}', "n is 9223372036854775808, not int64"),
    ('{"u": -1}', "u is -1, not uint64"),
    ('{"l": ["a", 1]}', r"l\[\] is 1, not string"),
    ('{"l": {}}', "l is {}, not a list"),
    ('{"s": "N/A"}', 's is "N/A", not an object'),
    ('{"s": {"l": [{"z": "x"}]}}', r's.l\[\].z is "x", not int64'),
    ('{"s": {"a": "%s"}}' % ("x" * 99), 's.a is "x{40}…", not int64'),
    (r'{"text": "\ud800"}', "not valid JSON: half of a surrogate pair"),
    ('{"s": {"a": 1, "a": 2}}', "not valid JSON: a stands twice in an object"),
    ('{"text": "a"} {"text": "b"}', r"not valid JSON: Extra data \(character 15\)"),
    ('{"n": %s}' % ("1" * 5000), "not valid JSON: a number is too large"),
    ("[", r"not a JSON object: each line has to be one, like {…}"),
]
UNFIT_RECORDS = [
    ("007,1", 'id is "007", not int64'),
    ("1,a\rb", r'a quote \("\) or a CR inside a field'),
    ("1,\udcff", "not UTF-8"),
    ("1", "another number of fields than the line of names, which has 2. Commas separate fields"),
    ("1,2,3", "another number of fields"),
    (r'1,"a \"b\" c"', "a quote"),
]


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [*(("a.jsonl", *case) for case in UNFIT_LINES), *(("a.csv", *case) for case in UNFIT_RECORDS)],
)
def test_a_row_that_does_not_fit_is_refused_by_its_line(tmp_path: Path, name: str, row: str, problem: str) -> None:
    columns, before, after = AROUND[name]
    without = rows_of(write_file(tmp_path / f"good-{name}", (before + after).encode()), columns)
    file = write_file(tmp_path / name, f"{before}{row}\n{after}".encode(errors="surrogateescape"))
    line, place = before.count("\n") + 1, len(without) - 1

    with pytest.raises(ShardError, match=f"{name}, line {line}: {problem}"):
        read(file, columns)
    rows, bad = read_with_bad(file, columns)

    assert list(bad) == [place]
    assert re.match(f"line {line}: {problem.partition('. ')[0]}", str(bad[place]))
    assert "12345" not in bad[place].reason  # by which rows are counted
    empty = dict.fromkeys(rows.schema.names)
    assert rows.to_pylist() == [*without[:place], empty, without[place]]


ROWS = [{"id": 1, "text": "a", "ups": "x"}, {"id": 2, "text": "b", "ups": 3}]
WRITERS = {".jsonl": write_json_lines, ".csv": write_csv}


@pytest.mark.parametrize("ending", WRITERS)
def test_columns_that_were_not_chosen_are_left_out_whatever_they_hold(tmp_path: Path, ending: str) -> None:
    file = WRITERS[ending](tmp_path / f"a{ending}", ROWS)

    columns = columns_of(file, (("text", SEEN), ("id", "double")))

    assert columns == (("text", "string"), ("id", "double"))
    assert rows_of(file, columns, only=True) == [{"text": "a", "id": 1.0}, {"text": "b", "id": 2.0}]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    ("column", "kind", "problem"),
    [
        ("title", SEEN, 'have no field "title"; they have: id, text, ups'),
        ("ubs", "string", r'have no field "ubs"; .*\. Did you mean "ups"\?'),
        ("ups:float", SEEN, "'float' is not a type of --columns: string, int64, double, bool or json."),
    ],
)
def test_a_chosen_column_that_no_file_has_or_of_a_type_that_is_none_is_reported(
    tmp_path: Path, ending: str, column: str, kind: str, problem: str
) -> None:
    file = WRITERS[ending](tmp_path / f"a{ending}", ROWS)

    with pytest.raises(UsageError, match=problem):
        columns_of(file, (("text", SEEN), (column, kind)))


@pytest.mark.parametrize(
    "name",
    ["a.jsonl", "a.json", "a.ndjson.gz", "a.jsonl.zst", "A.JSONL", "a.json.GZ", "a.csv", "a.csv.gz", "a.csv.zst"],
)
@pytest.mark.parametrize("codec", ["gzip", "zstd", None])
def test_a_compressed_file_is_read_whatever_its_name_says(tmp_path: Path, name: str, codec: str | None) -> None:
    content = WRITERS[".csv" if "csv" in name else ".jsonl"](tmp_path / "plain", ROWS[:1]).read_bytes()
    (tmp_path / name).write_bytes(pa.compress(content, codec, asbytes=True) if codec else content)

    assert rows_of(tmp_path / name) == ROWS[:1]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"PK\x03\x04", "a zip"), (b"BZh9", "a bzip2"), (b"\xfd7zXZ\0", "an xz"), (b"PAR1", "a Parquet")],
)
def test_another_format_is_reported_by_its_first_bytes(tmp_path: Path, name: str, start: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(start + b"\0" * 100)

    with pytest.raises(ShardError, match=f"{name} is {kind} file, whatever its name says. Unpack it"):
        read(tmp_path / name)


@pytest.mark.parametrize("compression", [".gz", ".zst"])
@pytest.mark.parametrize("ending", WRITERS)
def test_a_truncated_file_is_refused(tmp_path: Path, ending: str, compression: str) -> None:
    rows = [{"text": f"text {row}"} for row in range(1000)]
    file = WRITERS[ending](tmp_path / f"cut{ending}{compression}", rows)
    whole = file.read_bytes()
    for left in (0, 5, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:left])

        with pytest.raises(
            ShardError, match=r"Reading .*cut\..*: (not a readable .* Replace it, then repeat|the file is empty, so)"
        ):
            read(file, (("text", "string"),))
