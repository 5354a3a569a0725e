"""Models with several labels: the scores of a transformers pipeline, a column for each label, and filters on all of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

import shardsift
from fleet.ledger import Ledger
from producer.options import RunOptions
from support.models import tiny_classifier
from support.outputs import published_rows
from support.small_run import publish

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = {"0": "POSITIVE", "1": "so-so", "2": "climate change"}
COLUMNS = ["score_POSITIVE", "score_so_so", "score_climate_change"]
TEXTS = ["Light becomes sugar.", "Buy now!", "The mitochondrion is the powerhouse of the cell."]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_classifier(tmp_path_factory.mktemp("models") / "three", labels=len(LABELS))
    return with_config(folder, id2label=LABELS, label2id={label: int(number) for number, label in LABELS.items()})


def with_config(model: Path, **changes: object) -> Path:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    return model


@pytest.mark.parametrize(
    ("problem", "function"),
    [
        (None, "softmax"),
        ("single_label_classification", "softmax"),
        ("multi_label_classification", "sigmoid"),
        ("regression", "none"),
    ],
)
def test_scores_are_those_of_the_pipeline_by_default(
    problem: str | None, function: str, classifier: Path, tmp_path: Path
) -> None:
    model = with_config(Path(shutil.copytree(classifier, tmp_path / "model")), problem_type=problem)
    told = pipeline("text-classification", model=str(model), top_k=None)(TEXTS)
    of_pipeline = [{one["label"]: one["score"] for one in scores} for scores in told]

    scorer = shardsift.load_scorer(model, dtype="float32", device="cpu", parity_rows=0)
    scores, table = scorer.score(TEXTS), scorer.table(TEXTS)

    assert scorer.model.function == function
    assert scores == pytest.approx(np.array([[one[label] for label in scorer.labels] for one in of_pipeline]), abs=1e-5)
    assert table["label"].to_pylist() == [max(one, key=lambda label: one[label]) for one in of_pipeline]
    assert np.array_equal(np.column_stack([table[name] for name in COLUMNS]), scores)
    assert np.array_equal(table["score"].to_numpy(), scores.max(axis=1))


@pytest.mark.parametrize(
    ("where", "in_pandas"),
    [
        ("label = 'POSITIVE' and score >= 0.5", "label == 'POSITIVE' and score >= 0.5"),
        ("score_climate_change - score_POSITIVE > 0.7", "score_climate_change - score_POSITIVE > 0.7"),
        ("label in ('so-so', 'climate change')", "label in ['so-so', 'climate change']"),
    ],
)
def test_rows_are_kept_by_label_and_by_the_score_of_each(
    where: str, in_pandas: str, classifier: Path, shards: Path, ledger: Ledger, tmp_path: Path
) -> None:
    scorer = shardsift.load_scorer(classifier, dtype="float32", device="cpu", parity_rows=0)
    output = tmp_path / "out"
    options = RunOptions(
        input_uris=(str(shards),), output_uri=str(output), models=(str(classifier),), dtype="float32", where=where
    )

    publish(ledger, scorer.scorer, options, scratch=tmp_path / "scratch")

    kept, scores = published_rows(output).to_pandas(), published_rows(output, "scores").to_pandas()
    expected = scores.query(in_pandas)
    assert 0 < len(kept) < len(scores)
    added = ["shard", "row", "score", "label", *COLUMNS]
    assert kept[added].to_dict("records") == expected[added].to_dict("records")
    assert shardsift.verify(output).faults == ()
