"""Models with several labels: the scores of a transformers pipeline, a column for each label, and filters on all of them."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import pipeline

import shardsift
from shardsift.fleet.errors import UsageError
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from support.models import configured, tiny_classifier, with_labels
from support.outputs import published_rows
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("POSITIVE", "so-so", "climate change")
COLUMNS = ["score_POSITIVE", "score_so_so", "score_climate_change"]
TEXTS = ["Light becomes sugar.", "Buy now!", "The mitochondrion is the powerhouse of the cell."]


@pytest.fixture
def options(shards: Path, tmp_path: Path) -> RunOptions:
    return RunOptions(input_uris=(str(shards),), output_uri=str(tmp_path / "out"), dtype="float32")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_labels(tiny_classifier(tmp_path_factory.mktemp("models") / "three", labels=len(LABELS)), LABELS)


@pytest.mark.parametrize(
    ("problem", "function"),
    [
        (None, "softmax"),
        ("single_label_classification", "softmax"),
        ("multi_label_classification", "sigmoid"),
        ("regression", "none"),
    ],
)
def test_default_scores_are_the_pipelines(problem: str | None, function: str, classifier: Path, tmp_path: Path) -> None:
    model = configured(Path(shutil.copytree(classifier, tmp_path / "model")), problem_type=problem)
    told = pipeline("text-classification", model=str(model), top_k=None)(TEXTS)
    of_pipeline = [{one["label"]: one["score"] for one in scores} for scores in told]

    scorer = shardsift.load_scorer(model, dtype="float32", device="cpu", parity_rows=0)
    scores, table = scorer.score(TEXTS), scorer.table(TEXTS)

    assert scorer.model.function == function
    assert scores == pytest.approx(np.array([[one[label] for label in scorer.labels] for one in of_pipeline]), abs=1e-5)
    assert table["label"].to_pylist() == [max(one, key=lambda label: one[label]) for one in of_pipeline]
    assert np.array_equal(np.column_stack([table[name] for name in COLUMNS]), scores)
    assert np.array_equal(table["score"].to_numpy(), scores.max(axis=1))


def test_rows_are_kept_by_label_and_by_the_score_of_each(classifier: Path, runs: Runs, shards: Path) -> None:
    where = "label in ('so-so', 'climate change') and score_climate_change - score_POSITIVE > 0.7"

    out = runs.by(classifier).publish(shards, where=where)

    kept, scores = (published_rows(out, kind).to_pandas() for kind in ("data", "scores"))
    expected = scores.query(where.replace("(", "[").replace(")", "]"))
    assert 0 < len(kept) < len(scores)
    added = ["shard", "row", *runs.specs[out].output_columns]
    assert kept[added].to_dict("records") == expected[added].to_dict("records")
    assert shardsift.verify(out).faults == ()


# --- a threshold that means something ---------------------------------------------------------------------------------


@pytest.fixture
def two_labels(tmp_path: Path) -> Path:
    return with_labels(tiny_classifier(tmp_path / "two", labels=2), ("0", "1"))


@pytest.mark.parametrize(
    ("choice", "refusal"),
    [
        ({"min_score": 0.5}, "keeps every row: .* never below 1/2. Name a label: --where 'score_1 >= 0.5'"),
        ({"min_score": 0.0, "function_to_apply": "sigmoid"}, "keeps every row: .* Say --keep-all"),
        ({"min_score": 1.5}, "keeps no row"),
        ({}, "Say which rows to keep: --min-score, --where or --keep-all"),
    ],
)
def test_a_threshold_that_keeps_every_row_or_none_is_refused(
    choice: dict[str, Any], refusal: str, two_labels: Path, options: RunOptions
) -> None:
    with pytest.raises(UsageError, match=refusal):
        plan_run(replace(options, models=(str(two_labels),), **choice))


@pytest.mark.parametrize(
    ("threshold", "where"),
    [
        (0.25, '"score" >= 0.25'),
        (None, None),
        ("high", None),
        (True, None),
        (math.nan, None),
    ],
)
def test_a_model_of_one_score_is_filtered_by_its_own_threshold_or_the_user_must_say_one(
    threshold: object, where: str | None, tiny_model: Path, options: RunOptions, tmp_path: Path
) -> None:
    model = configured(Path(shutil.copytree(tiny_model, tmp_path / "model")), shardsift_threshold=threshold)
    options = replace(options, models=(str(model),))

    if where:
        assert plan_run(options).spec.where == where
    else:
        with pytest.raises(UsageError, match="--min-score, --where or --keep-all"):
            plan_run(options)
    assert plan_run(replace(options, min_score=2.0)).spec.where == '"score" >= 2.0'
