"""Labelled rows may be in several files, of any format that a run reads, and are the same rows whatever files hold them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.worker.training.labelled import Labelled, label_source, read_labelled
from shardsift.worker.training.train_options import TrainOptions
from support.labelled import write_topics

ROWS = 60

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def whole(tmp_path: Path) -> pa.Table:
    return pq.read_table(write_topics(tmp_path / "whole.parquet", rows=ROWS))


def rows_of(data: Path | str, **columns: Any) -> Labelled:
    return read_labelled(label_source(TrainOptions(data=str(data), base_model="x", output="y", **columns)))


def in_parts(table: pa.Table, folder: Path, *, rows: int = 25) -> Path:
    folder.mkdir()
    for number, start in enumerate(range(0, len(table), rows)):
        pq.write_table(table.slice(start, rows), folder / f"{number}.parquet")
    return folder


def write_lines(table: pa.Table, file: Path) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    return file


def test_the_digest_is_of_the_rows_and_not_of_the_files(whole: pa.Table, tmp_path: Path) -> None:
    digest = rows_of(tmp_path / "whole.parquet").digest

    (tmp_path / "csv").mkdir()
    pyarrow.csv.write_csv(whole, tmp_path / "csv" / "all.csv")
    others = [in_parts(whole, tmp_path / "parts"), in_parts(whole, tmp_path / "more", rows=7)]
    assert {rows_of(data).digest for data in others} == {digest}
    assert rows_of(write_lines(whole, tmp_path / "all.jsonl")).digest == digest
    assert rows_of(tmp_path / "csv", label_column="topic").digest == rows_of(others[0], label_column="topic").digest

    for changed in (whole.slice(1), whole.take([1, 0, *range(2, ROWS)])):
        pq.write_table(changed, tmp_path / "whole.parquet")
        assert rows_of(tmp_path / "whole.parquet").digest != digest


def test_integers_and_fractions_in_two_files_are_numbers(tmp_path: Path) -> None:
    for name, labels in (("a.jsonl", [1, 2]), ("b.jsonl", [0.5])):
        write_lines(pa.table({"text": ["a text"] * len(labels), "label": labels, "more": labels}), tmp_path / name)

    assert rows_of(f"{tmp_path}/*.jsonl").labels.to_pylist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"text": ["b"]}, r'/data/b.parquet has no column "label"; it has: text. Name one with --label-column'),
        ({"label": [1.0]}, r'/data/b.parquet has no column "text"; it has: label. Name one with --text-column'),
        ({"text": ["b"], "label": ["good"]}, r'labels in "label" of .*/data are not alike: .*string'),
    ],
)
def test_a_file_that_differs_from_the_others_is_named(second: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ["a"], "label": [1.0]}), tmp_path / "data" / "a.parquet")
    pq.write_table(pa.table(second), tmp_path / "data" / "b.parquet")

    with pytest.raises(UsageError, match=message):
        rows_of(tmp_path / "data")
