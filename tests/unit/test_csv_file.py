"""CSV: every row is read as it is written, or refused by its line and column."""

import csv
import io
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.csv_file import CsvFile
from shardsift.fleet.inputs.input_file import NotedRows
from shardsift.fleet.inputs.open_input import columns_of_lines, open_input
from support.line_files import columns_of, read, read_with_bad, rows_of, write_file


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    content = 'id,text,score,good\n1,one,0.5,true\n2,"two, ""quoted""\nand more é 🙂",1e-05,False\n,"",,\n'
    file = write_file(tmp_path / "a.csv", content.encode())

    assert columns_of(file) == (("id", "int64"), ("text", "string"), ("score", "double"), ("good", "bool"))
    assert rows_of(file) == [
        {"id": 1, "text": "one", "score": 0.5, "good": True},
        {"id": 2, "text": 'two, "quoted"\nand more é 🙂', "score": 1e-05, "good": False},
        {"id": None, "text": "", "score": None, "good": None},
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "", "-3"], "int64"),
        (["1e-05", "1.5e+300", "-0.25", "1.23E7", "-0.00012345678901234567", "1.0000000000000002"], "double"),
        (["", ""], "string"),
        (["007"], "string"),
        (["NaN"], "string"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808"], "string"),
        (["1234567890123456789", "0.5"], "string"),
        ([" 1"], "string"),
    ],
)
def test_a_column_is_one_of_numbers_only_if_nothing_is_lost(tmp_path: Path, values: list[str], kind: str) -> None:
    file = write_file(tmp_path / "a.csv", "".join(f"t,{value}\n" for value in ["x", *values]).encode())

    assert columns_of(file) == (("t", "string"), ("x", kind))
    if kind == "string":
        assert [row["x"] or "" for row in rows_of(file)] == values


def test_a_file_with_a_header_alone_has_columns_of_text_and_no_rows(tmp_path: Path) -> None:
    for content in (b"id,text", b"id,text\n", b"\xef\xbb\xbf\r\nid,text\r\n\r\n"):
        file = write_file(tmp_path / "a.csv", content)

        assert columns_of(file) == (("id", "string"), ("text", "string"))
        assert rows_of(file) == rows_of(file, (("id", "int64"), ("text", "string"))) == []


def test_a_column_without_a_name_is_called_as_pandas_calls_it(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.csv", b",text\n0,a\n")

    assert columns_of(file) == (("Unnamed: 0", "int64"), ("text", "string"))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    contents = [b"id,text\n1,a\n", b"1,a\n2,b\n", b"text,ups,id\nb,0.5,2\n", b"id,text\n3,c\n"]
    return [write_file(tmp_path / f"{place}.csv", content) for place, content in enumerate(contents)]


def test_ragged_files_have_the_columns_of_all_and_null_for_those_that_one_lacks(files: list[Path]) -> None:
    columns = columns_of_lines([*map(str, files)])

    assert columns == (("id", "int64"), ("text", "string"), ("ups", "double"))
    assert rows_of(files[0], columns) == [{"id": 1, "text": "a", "ups": None}]
    assert rows_of(files[0], (("id", "int64"), ("tags", "list<item: string>"))) == [{"id": 1, "tags": None}]
    assert rows_of(files[2], columns) == [{"id": 2, "text": "b", "ups": 0.5}]


def test_a_file_without_a_line_of_names_is_refused(files: list[Path]) -> None:
    with pytest.raises(ShardError, match="1.csv has no column of the run, which reads id, text; it has: 1, a. Commas"):
        read(files[1], (("id", "int64"), ("text", "string")))


def test_a_file_loses_the_columns_that_the_run_does_not_have(files: list[Path]) -> None:
    noted = NotedRows()

    with open_input(str(files[2]), (("id", "int64"), ("text", "string"))) as opened:
        assert [row for batch in opened.batches(bad=noted) for row in batch.to_pylist()] == [{"id": 2, "text": "b"}]

    assert noted.left_out == {0: ("ups",)}


@pytest.mark.parametrize(
    "rows", ['1,5" pipe\n2,b\n3,6" pipe\n4,d\n', '1,"a" b\n2,"c"\nd" e\n', '1,"two\nlines" or\n3 "more"\n']
)
def test_a_quote_that_may_move_the_ends_of_other_rows_fails_the_file(tmp_path: Path, rows: str) -> None:
    file = write_file(tmp_path / "a.csv", f"id,text\n{rows}".encode())

    with pytest.raises(ShardError, match=r"a.csv, line \d: (a quote|a quoted field has no end)"):
        read_with_bad(file, (("id", "string"), ("text", "string")))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "a.csv is empty. A CSV file begins with a line of names"),
        (b"id,text,id\n", 'a.csv, line 1: several columns are called "id". Rename all but one'),
        (b'text\na\n"b\nc\n', "a.csv, line 3: a quoted field has no end, or a quote"),
        (b"text\ra\rb\r", "a.csv, line 1: a quote"),
        (b'id,text\n1,"a\rb"\n2,a\rb\n', "a.csv, line 3: a quote"),
    ],
)
def test_a_file_that_is_no_csv_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    file = write_file(tmp_path / "a.csv", content)

    with pytest.raises(ShardError, match=problem):
        read(file)


def test_a_type_that_csv_has_not_is_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.csv", b"text,tags\na,b\n")

    with pytest.raises(ShardError, match='a.csv cannot have the column "tags" of the run, which is list<item: string>'):
        read(file, (("text", "string"), ("tags", "list<item: string>")))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(st.text(alphabet='ab",\n\r é', max_size=8), min_size=2, max_size=2), max_size=12),
    block_bytes=st.integers(1, 60),
    ending=st.sampled_from(["\n", "\r\n"]),
    quoted=st.booleans(),
)
def test_whatever_the_fields_and_blocks_rows_are_what_python_wrote(
    tmp_path: Path, rows: list[list[str]], block_bytes: int, ending: str, quoted: bool
) -> None:
    written = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quoted or any("\r" in field for row in rows for field in row) else csv.QUOTE_MINIMAL
    csv.writer(written, lineterminator=ending, quoting=quoting).writerows([["one", "two"], *rows])
    file = write_file(tmp_path / "a.csv", written.getvalue().encode())

    columns = (("one", "string"), ("two", "string"))
    opened = CsvFile(partial(open, file, "rb"), "a.csv", columns, block_bytes=block_bytes)

    read_rows = [row for batch in opened.batches() for row in batch.to_pylist()]
    assert [[row["one"] or "", row["two"] or ""] for row in read_rows] == rows
    assert opened.count_rows() == len(rows)
