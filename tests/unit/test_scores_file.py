"""Scores that are read from a shard's scores file equal those written to it, bit for bit, window by window."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.worker.scoring import Scores
from shardsift.worker.shard.reader import Window
from shardsift.worker.shard.stored_scores import ShardScores
from shardsift.worker.shard.writer import ShardWriter, row_errors, with_scores
from support.records import a_receipt, a_shard, a_spec
from support.written_shards import write_shard

ROWS, WINDOW_ROWS = 50, 8
SCHEMA = pa.schema([("text", pa.string()), ("id", pa.string())])
SHARD = a_shard("a")


def a_spec_of(*, outputs: int = 1, **changes: Any) -> RunSpec:
    labels = tuple(f"LABEL_{number}" for number in range(outputs))
    return a_spec(model=Model(name="m", revision="r", labels=labels), int_score=outputs == 1, **changes)


def some_scores(outputs: int) -> Scores:
    values = np.random.default_rng(3).normal(size=(ROWS, outputs)).astype(np.float32)
    errors = {0: "null text", 17: "blank text", ROWS - 1: "no token in the text"}
    values[list(errors)] = np.nan
    return Scores(values=values, errors=errors)


def scores_file(folder: Path, spec: RunSpec, scores: Scores) -> bytes:
    rows = pa.table({"text": [str(row) for row in range(ROWS)], "id": [str(row) for row in range(ROWS)]}, schema=SCHEMA)
    options: dict[str, Any] = {"errors": scores.errors, "kept": [], "spec": spec, "window_rows": WINDOW_ROWS}
    return write_shard(folder, rows, scores.values, **options).scores.read_bytes()


def stored_in(content: bytes, spec: RunSpec) -> ShardScores:
    parquet = pq.ParquetFile(BytesIO(content))
    rows = parquet.metadata.num_rows
    receipt = a_receipt("run", SHARD, rows_in=rows, rows_kept=rows, rows_dropped=0, rows_errored=0)
    return ShardScores(RowGroups(parquet), receipt, spec)


def digests_of(first_row: int) -> list[str]:
    return [f"texts from {first_row}"]


def regrouped(content: bytes, group_rows: int) -> bytes:
    """The same file with smaller row groups, as in a shard of many rows."""
    sink, metadata = pa.BufferOutputStream(), pq.read_metadata(BytesIO(content)).metadata
    rows = pq.read_table(BytesIO(content)).replace_schema_metadata(metadata)
    pq.write_table(rows, sink, row_group_size=group_rows)
    return sink.getvalue().to_pybytes()


def windows(scores: Scores) -> Iterator[tuple[int, Scores]]:
    for first in range(0, ROWS, WINDOW_ROWS):
        rows = range(first, min(first + WINDOW_ROWS, ROWS))
        errors = {row - first: reason for row, reason in scores.errors.items() if row in rows}
        yield first, Scores(values=scores.values[rows.start : rows.stop], errors=errors)


@pytest.mark.parametrize("group_rows", [7, 20, 100_000])
@pytest.mark.parametrize(
    ("outputs", "function"), [(1, "none"), (1, "sigmoid"), (3, "none"), (3, "softmax"), (3, "sigmoid")]
)
def test_the_scores_of_every_window_come_back(outputs: int, function: str, group_rows: int, tmp_path: Path) -> None:
    spec, scores = a_spec_of(outputs=outputs, function_to_apply=function), some_scores(outputs)
    content = regrouped(scores_file(tmp_path, spec, scores), group_rows)

    stored = stored_in(content, spec)
    for first, expected in windows(scores):
        (found,) = stored.scores_of(first, digests_of(first)) or ()
        assert found.has_all_rows
        assert found.errors == expected.errors
        assert found.values.tobytes() == expected.values.tobytes()


@pytest.mark.parametrize(
    ("first_row", "digests"),
    [(0, ["other texts"]), (8, digests_of(0)), (8, [*digests_of(8), "more"]), (3, digests_of(3)), (64, digests_of(64))],
)
def test_other_texts_and_other_windows_have_no_scores(first_row: int, digests: list[str], tmp_path: Path) -> None:
    spec = a_spec_of()
    content = scores_file(tmp_path, spec, some_scores(1))

    stored = stored_in(content, spec)
    assert stored.scores_of(first_row, digests) is None


def test_each_of_several_scorings_gets_its_own_errors_back(tmp_path: Path) -> None:
    one, other = (a_spec(score_column=column).scorings[0] for column in ("edu", "edu_too"))
    spec = replace(a_spec(), scorings=(one, other))
    scores = [
        Scores(values=np.array([[np.nan], [np.nan], [2.0]], np.float32), errors={0: "null text", 1: "odd; edu_too"}),
        Scores(values=np.array([[np.nan], [1.0], [3.0]], np.float32), errors={0: "blank text"}),
    ]
    rows = pa.table({"text": ["", "a", "b"], "id": ["0", "1", "2"]}, schema=SCHEMA)
    window, errors = Window(first_row=0, rows=rows), row_errors(scores, spec.scorings)
    files = ShardWriter(tmp_path, SCHEMA, SHARD, spec)
    files.write(window, scores, ["texts", "others"])
    content = files.close()[1].path.read_bytes()

    stored = stored_in(content, spec)
    found = stored.scores_of(0, ["texts", "others"])
    assert stored.scores_of(0, ["others", "texts"]) is None

    assert [part.errors for part in found] == [part.errors for part in scores]
    assert row_errors(found, spec.scorings) == errors
    again = with_scores(window, found, errors, SHARD, spec)
    assert again.equals(with_scores(window, scores, errors, SHARD, spec))


def test_a_column_whose_name_is_also_a_field_of_an_object_is_read_alone(tmp_path: Path) -> None:
    rows = pa.table({"at": [{"row": 1, "x": 2}], "at.row": [3]})
    pq.write_table(rows, tmp_path / "a.parquet")
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        (found,) = RowGroups(file).between(0, 1, ["at.row"])

    assert found.to_pylist() == [{"at.row": 3}]
