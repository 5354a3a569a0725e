"""A zero-shot run publishes the pipeline's labels and scores, can be filtered by them, and refilters to the same bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

import shardsift
from fleet.errors import ShardError, UsageError
from fleet.ledger import Ledger
from fleet.run.scorers import published_run
from producer.planning.options import RunOptions
from producer.planning.plan import plan_refilter, plan_run
from support.nli import nli_classifier, pipeline_scores
from support.outputs import data_digests, published_rows
from support.same_footer import rewrite_shuffled, write_uncompressed
from support.small_run import publish, publish_plan
from worker.scoring.load import load_scorer
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.shard.stored_scores import load_stored_scores

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("climate change", "food, drink", "C++")
COLUMNS = ["score_climate_change", "score_food_drink", "score_C"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / "model", "BART")


@pytest.fixture(scope="module")
def scorer(model: Path) -> SequenceClassifier:
    return load_scorer(str(model), "float32", device="cpu", parity_rows=0)


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


def test_labels_and_scores_are_those_of_the_pipeline(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    publish(ledger, scorer, options, scratch=tmp_path / "scratch")

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
    assert shardsift.verify(tmp_path / "out").faults == ()


def test_another_filter_over_the_stored_scores_gives_the_bytes_of_a_fresh_run(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    options = replace(options, limit_rows=20, max_tokens=64, passages="stride:32")
    earlier = publish(ledger, scorer, options, scratch=tmp_path / "scratch")
    scores = published_rows(tmp_path / "out", "scores")
    where = f"score_climate_change > {float(np.median(scores['score_climate_change']))} or label = 'C++'"
    fresh = replace(options, output_uri=str(tmp_path / "fresh"), keep_all=False, where=where)
    publish(ledger, scorer, fresh, scratch=tmp_path / "scratch")

    where_again = where
    wanted = RunOptions(where=where_again, output_uri=str(tmp_path / "again"))
    plan = plan_refilter(earlier.output_uri, wanted, earlier=earlier)
    stored = load_stored_scores(plan.spec.scorings[0].served_by, None)
    publish_plan(ledger, stored, plan, scratch=tmp_path / "scratch")

    assert data_digests(tmp_path / "again") == data_digests(tmp_path / "fresh")
    assert 0 < len(published_rows(tmp_path / "fresh")) < len(scores)


def test_texts_that_were_exchanged_are_given_no_scores(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    texts = [f"Number {number}" for number in range(10, 30)]
    write_uncompressed(tmp_path / "in/a.parquet", pa.table({"text": texts}))
    options = replace(options, input_uris=(str(tmp_path / "in"),), limit_rows=None)
    earlier = publish(ledger, scorer, options, scratch=tmp_path / "scratch")
    rewrite_shuffled(tmp_path / "in/a.parquet")

    where_again = "label = 'C++'"
    plan = plan_refilter(
        earlier.output_uri, RunOptions(where=where_again, output_uri=str(tmp_path / "again")), earlier=earlier
    )
    stored = load_stored_scores(plan.spec.scorings[0].served_by, None)
    with pytest.raises(ShardError, match="a, rows 0 to 19: these are not the texts"):
        publish_plan(ledger, stored, plan, scratch=tmp_path / "scratch")


def test_the_labels_of_long_texts_are_those_of_their_passages_and_the_card_says_so(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    in_passages = replace(options, limit_rows=12, max_tokens=64, passages="head+tail:mean")
    publish(ledger, scorer, in_passages, scratch=tmp_path / "scratch")

    kept = published_rows(tmp_path / "out")
    choices = {"hypothesis_template": options.hypothesis_template, "max_tokens": 64}
    loaded = shardsift.load_scorer(options.models[0], dtype="float32", device="cpu", parity_rows=0)
    found, heads = (
        loaded.score(kept["text"], labels=LABELS, passages=passages, **choices)
        for passages in ("head+tail:mean", "head")
    )
    assert np.column_stack([kept[name] for name in COLUMNS]) == pytest.approx(found, abs=1e-5)
    assert np.abs(found - heads).max() > 1e-3  # there are longer texts
    assert "in passages (head+tail), whose logits are pooled by mean" in (tmp_path / "out" / "README.md").read_text()


def test_the_card_and_the_manifest_name_the_labels(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    spec = publish(ledger, scorer, options, scratch=tmp_path / "scratch")

    card = (tmp_path / "out/README.md").read_text()
    assert "| Zero-shot | `This text is about {}.` with 3 labels |" in card
    assert "- `label`: the label with that score, of: climate change, food, drink, C++." in card
    assert "- `score_food_drink`: the probability by softmax of the label food, drink." in card
    (scoring,) = published_run(str(tmp_path / "out")).spec.scorings
    assert scoring.zero_shot == spec.scorings[0].zero_shot
    assert pq.read_schema(next((tmp_path / "out/data").rglob("*.parquet"))).names[-5:] == ["score", "label", *COLUMNS]


def test_a_shard_fails_with_the_reason_if_a_label_is_too_long_for_the_model(
    options: RunOptions, scorer: SequenceClassifier, ledger: Ledger, tmp_path: Path
) -> None:
    options = replace(options, labels=("a", "many words " * 600))

    with pytest.raises(shardsift.ShardsiftError, match="takes 512 together with the text. Choose a shorter label"):
        publish(ledger, scorer, options, scratch=tmp_path / "scratch")


def test_a_threshold_that_no_probability_reaches_is_refused(options: RunOptions) -> None:
    with pytest.raises(
        UsageError, match="--min-score 3 keeps no row: these scores are probabilities from 0 to 1, by softm"
    ):
        plan_run(replace(options, keep_all=False, min_score=3.0))
