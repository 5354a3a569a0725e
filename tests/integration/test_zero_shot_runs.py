"""A zero-shot run publishes the pipeline's labels and scores, can be filtered by them, and refilters to the same bytes."""

from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

import shardsift
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.producer.planning.options import RunOptions
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.models import plain_scorer
from support.nli import nli_classifier, pipeline_scores
from support.outputs import published_rows
from support.small_run import publish

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("climate change", "food, drink", "C++")
COLUMNS = ["score_climate_change", "score_food_drink", "score_C"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / "model", "BART")


@pytest.fixture(scope="module")
def scorer(model: Path) -> SequenceClassifier:
    return plain_scorer(model)


@pytest.fixture
def options(model: Path, shards: Path, tmp_path: Path) -> RunOptions:
    return RunOptions(
        input_uris=(str(shards),),
        output_uri=str(tmp_path / "out"),
        models=(str(model),),
        dtype="float32",
        limit_rows=24,
        labels=LABELS,
        hypothesis_template="This text is about {}.",
        keep_all=True,
    )


def test_labels_and_scores_are_those_of_the_pipeline_and_card_and_manifest_name_the_labels(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    spec = publish(ledger, scorer, options, scratch=tmp_path / "scratch")

    kept = published_rows(tmp_path / "out")
    expected = pipeline_scores(
        pipeline("zero-shot-classification", model=options.models[0]),
        kept["text"].to_pylist(),
        LABELS,
        hypothesis_template=options.hypothesis_template,
    )
    assert np.column_stack([kept[name] for name in COLUMNS]) == pytest.approx(expected, abs=1e-4)
    assert kept["score"].to_numpy() == pytest.approx(expected.max(axis=1), abs=1e-4)
    tops = [LABELS[number] for number in np.column_stack([kept[name] for name in COLUMNS]).argmax(axis=1)]
    assert kept["label"].to_pylist() == tops
    assert kept.column_names[-5:] == ["score", "label", *COLUMNS]
    assert shardsift.verify(tmp_path / "out").faults == ()
    card = (tmp_path / "out/README.md").read_text()
    assert "| Zero-shot | `This text is about {}.` with 3 labels |" in card
    assert "- `label`: the label with that score, of: `climate change`, `food, drink`, `C++`." in card
    assert "- `score_food_drink`: the probability by softmax of the label `food, drink`." in card
    (scoring,) = published_run(str(tmp_path / "out")).spec.scorings
    assert scoring.zero_shot == spec.scorings[0].zero_shot
