"""JSON Lines and CSV: bad rows are found wherever they are, and move no other row."""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shardsift.fleet.inputs.csv_file import CsvFile
from shardsift.fleet.inputs.input_file import BadRows
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.line_blocks import BLOCK_BYTES, LineRows
from support.line_files import write_file

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
