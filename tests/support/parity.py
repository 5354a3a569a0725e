"""Compare scores with those of transformers, and record how close they are. `make parity` prints the table."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_FILE = "SHARDSIFT_TEST_PARITY"  # environment variable: the file that gets a line of JSON for each comparison
_TOLERANCE = 1e-4  # of a float32 score


def assert_close(found: Any, expected: Any, *, task: str, family: str) -> None:
    """Check that two arrays of scores with the same shape are close, and record their largest difference."""
    difference = float(np.abs(np.asarray(found) - np.asarray(expected)).max())
    if file := os.environ.get(_FILE):
        with Path(file).open("a") as lines:
            lines.write(json.dumps({"task": task, "family": family, "difference": difference}) + "\n")
    assert difference < _TOLERANCE


def table(lines: Iterable[str]) -> str:
    """Make a Markdown table: a row for each family, a column for each task, the largest difference in each cell."""
    found: dict[tuple[str, str], float] = {}
    for one in map(json.loads, lines):
        cell = one["family"], one["task"]
        found[cell] = max(found.get(cell, 0.0), one["difference"])
    tasks = list(dict.fromkeys(task for _, task in sorted(found, key=lambda cell: cell[1])))
    families = sorted({family for family, _ in found})
    rows = [["family", *tasks], ["---", *["---:"] * len(tasks)]]
    rows += [[family, *(_shown(found.get((family, task))) for task in tasks)] for family in families]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(difference: float | None) -> str:
    return "" if difference is None else f"{difference:.0e}"


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1]).read_text().splitlines()) + "\n")
