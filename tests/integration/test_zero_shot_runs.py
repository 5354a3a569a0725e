"""A zero-shot run publishes the pipeline's labels and scores, can be filtered by them, and refilters to the same bytes."""

from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

import shardsift
from shardsift.fleet.scorers.stored_scores import published_run
from support.nli import nli_classifier, pipeline_scores
from support.outputs import published_rows
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("climate change", "food, drink", "C++")
COLUMNS = ["score_climate_change", "score_food_drink", "score_C"]


def test_labels_and_scores_are_those_of_the_pipeline_and_card_and_manifest_name_the_labels(
    runs: Runs, shards: Path, tmp_path: Path
) -> None:
    model, hypothesis = nli_classifier(tmp_path / "nli", "BART"), {"hypothesis_template": "This text is about {}."}

    out = runs.by(model).publish(shards, limit_rows=24, labels=LABELS, **hypothesis)

    kept = published_rows(out)
    expected = pipeline_scores(
        pipeline("zero-shot-classification", model=str(model)), kept["text"].to_pylist(), LABELS, **hypothesis
    )
    assert np.column_stack([kept[name] for name in COLUMNS]) == pytest.approx(expected, abs=1e-4)
    assert kept["score"].to_numpy() == pytest.approx(expected.max(axis=1), abs=1e-4)
    tops = [LABELS[number] for number in np.column_stack([kept[name] for name in COLUMNS]).argmax(axis=1)]
    assert kept["label"].to_pylist() == tops
    assert kept.column_names[-5:] == ["score", "label", *COLUMNS]
    assert shardsift.verify(out).faults == ()
    card = (out / "README.md").read_text()
    assert "| Zero-shot | `This text is about {}.` with 3 labels |" in card
    assert "- `label`: the label with that score, of: `climate change`, `food, drink`, `C++`." in card
    assert "- `score_food_drink`: the probability by softmax of the label `food, drink`." in card
    (scoring,) = published_run(str(out)).spec.scorings
    assert scoring.zero_shot == runs.specs[out].scorings[0].zero_shot
