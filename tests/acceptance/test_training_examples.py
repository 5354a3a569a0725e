"""examples/training: a loop of the tutorials and `worker train` end with the same loss, and the page names every file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.labelled import write_topics
from support.models import tiny_classifier
from support.processes import call_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/training"
ROWS = 65  # of which 52 are learned from: the last step of an epoch has two batches of 8 rows and one of 4

pytestmark = pytest.mark.usefixtures("one_thread", "on_machine")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_classifier(tmp_path_factory.mktemp("base") / "tiny")


def run(name: str, base: Path, folder: Path) -> list[dict[str, Any]]:
    """The lines of an example's report."""
    assert call_script(FOLDER / name, *options(base, folder)) == 0
    return report_in(folder)


def options(base: Path, folder: Path) -> list[str | Path]:
    """Of a script of the folder."""
    data = write_topics(folder / "topics.parquet", rows=ROWS)
    learning = ["--model", base, "--data", data, "--label-column", "topic", "--learning-rate", "1e-3"]
    return [*learning, "--report", folder / "report.json"]


def report_in(folder: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())
    return lines


def assert_exact_ways_agree(lines: list[dict[str, Any]]) -> None:
    exact = [line for line in lines if line["is_exact"]]
    assert len(exact) >= 2
    assert any(line["way"].startswith("worker train") for line in exact)
    assert [line["loss"] for line in exact] == pytest.approx([exact[0]["loss"]] * len(exact), rel=1e-3)
    assert [line["accuracy"] for line in exact] == pytest.approx([exact[0]["accuracy"]] * len(exact))


@pytest.mark.slow
def test_accumulated_batches_train_as_one_large_batch(base: Path, tmp_path: Path) -> None:
    """The loop that divides each loss by 4 does not, because the last step of an epoch is smaller."""
    lines = run("gradient_accumulation.py", base, tmp_path)

    assert_exact_ways_agree(lines)
    assert [line["is_exact"] for line in lines] == [False, True, True, True]
    by_loop, whole, accumulated, _ = (line["loss"] for line in lines)
    assert abs(accumulated - whole) < abs(by_loop - whole) / 10


@pytest.mark.slow
def test_half_precision_trains_nearly_as_float32(base: Path, tmp_path: Path) -> None:
    lines = run("mixed_precision.py", base, tmp_path)

    assert_exact_ways_agree(lines)
    halves = [line for line in lines if not line["is_exact"]]
    assert {line["dtype"] for line in halves} >= {"bfloat16"}
    exact = lines[1]["loss"]
    assert [line["loss"] for line in halves] == pytest.approx([exact] * len(halves), rel=0.02)


@pytest.mark.slow
def test_other_ways_to_load_rows_end_with_the_same_loss(base: Path, tmp_path: Path) -> None:
    """In a process of its own, because a DataLoader forks, and this one may have threads that hold a lock."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    subprocess.run(
        [sys.executable, FOLDER / "data_loading.py", *options(base, tmp_path)], env=environment, check=True, timeout=240
    )

    lines = report_in(tmp_path)
    assert_exact_ways_agree(lines)
    assert all(line["is_exact"] for line in lines)
