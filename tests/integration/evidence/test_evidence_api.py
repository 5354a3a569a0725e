"""`shardsift.sample` and `shardsift.evaluate` take and return tables, and the picture shows what an evaluation says."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shardsift
from shardsift.producer.evidence.picture import evaluation_picture
from support.processes import call_command
from support.scored_datasets import publish_scores, write_texts

ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of scores from 0 to 4, of which those from 2 on are good; and its input."""
    found = tmp_path_factory.mktemp("scored")
    scores = np.random.default_rng(0).uniform(0, 4, ROWS)
    texts = ["good" if score >= 2 else "bad" for score in scores]
    source = write_texts(found / "source", [{"text": texts, "topic": ["news", "code"] * (ROWS // 2)}])
    publish_scores(found / "kept", source, {"000": scores}, where="score >= 1")
    return found


def sheet_of(folder: Path, **options: Any) -> pa.Table:
    return shardsift.sample(folder / "kept", rows=100, input=folder / "source", **options)


def labelled(sheet: pa.Table) -> pa.Table:
    good = pa.array([text == "good" for text in sheet["text"].to_pylist()])
    return sheet.set_column(sheet.column_names.index("label"), "label", good)


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "table": lambda sheet, _: sheet,
    "frame": lambda sheet, _: sheet.to_pandas(),
    "file": lambda sheet, folder: _written(sheet, folder / "labels.csv"),
    "text of a path": lambda sheet, folder: str(_written(sheet, folder / "labels.csv")),
}


def _written(sheet: pa.Table, file: Path) -> Path:
    sheet.to_pandas().to_csv(file, index=False)
    return file


@pytest.mark.parametrize("form", FORMS)
def test_the_labels_of_drawn_rows_are_a_table_a_frame_or_a_file(form: str, folder: Path, tmp_path: Path) -> None:
    labels = FORMS[form](labelled(sheet_of(folder)), tmp_path)

    found = shardsift.evaluate(folder / "kept", labels, at=[1.5, 2])

    assert isinstance(found, shardsift.Evaluation)
    assert found.labels.rows == 100
    at = found.at_threshold
    assert at is not None
    assert at.precision is not None
    assert (at.threshold, at.precision.low < 0.8 < at.precision.high) == (1.5, True)
    assert repr(found).startswith(f"<Evaluation {folder / 'kept'}: precision ")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda folder: shardsift.sample(folder / "kept"), r"Name it with input, or name the run instead"),
        (lambda folder: shardsift.sample(folder / "kept", rows=0), "rows=0 is wrong"),
        (lambda folder: shardsift.evaluate(folder / "kept", "./missing"), "No run is published at"),
        (
            lambda folder: shardsift.evaluate(folder / "kept", sheet_of(folder), disagreeing=1),
            "disagreeing compares two runs. Name another run of the same input with labels",
        ),
        (
            lambda folder: shardsift.evaluate(folder / "kept", sheet_of(folder).drop("weight")),
            r"Add unweighted if all rows had the same chance",
        ),
    ],
)
def test_a_mistake_is_a_usage_error_in_the_words_of_python(call: Any, says: str, folder: Path) -> None:
    with pytest.raises(shardsift.UsageError, match=says):
        call(folder)


@pytest.mark.usefixtures("pictures")
def test_the_command_draws_a_picture_that_is_the_same_for_the_same_labels(folder: Path, tmp_path: Path) -> None:
    labels, png = _written(labelled(sheet_of(folder)), tmp_path / "labels.csv"), tmp_path / "evaluation.png"

    done = call_command("producer", "evaluate", folder / "kept", "--labels", labels, "--png", png, environment={})
    found = shardsift.evaluate(folder / "kept", labels)

    assert done.returncode == 0, done.stderr
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.read_bytes() == evaluation_picture(found)
    assert evaluation_picture(found) != evaluation_picture(shardsift.evaluate(folder / "kept", labels, judge="judge"))
    assert b"matplotlib" not in png.read_bytes().lower()


def test_without_matplotlib_a_picture_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)

    with pytest.raises(shardsift.UsageError, match=r"pip install 'shardsift\[tune\]'"):
        evaluation_picture(shardsift.evaluate(folder / "kept", folder / "kept"))
