"""`producer evaluate --labels RUN` compares the scores of two runs of the same input, row by row and exactly."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.producer.evidence.evaluate import evaluate_run
from shardsift.producer.evidence.evaluation import Evaluation, Question
from shardsift.producer.scores.scored_run import scored_run
from support.processes import call_command
from support.scored_datasets import Scores, publish_scores, write_texts

SHARDS, ROWS = 3, 4000
TOPICS = ("news", "code", "prose")


@dataclass(frozen=True)
class Pair:
    """Two published runs of one input, and the rows with both scores."""

    source: Path
    one: str
    other: str
    rows: pd.DataFrame

    def evaluate(self, *at: float, **options: Any) -> Evaluation:
        question = {name: options.pop(name) for name in ("positive", "disagreeing") if name in options}
        return evaluated(self.one, self.other, *at, source=(str(self.source),), **question, **options)


def evaluated(
    one: str, other: str, *at: float, source: tuple[str, ...] = (), within: str | None = None, **question: Any
) -> Evaluation:
    one_run, other_run = (scored_run(uri, Settings()) for uri in (one, other))
    return evaluate_run(one_run, other_run, Question(at=at, **question), within=within, source=source)


def published(
    folder: Path, one: dict[str, Scores], other: dict[str, Scores], *, rows: int = ROWS, **changes: Any
) -> tuple[str, str]:
    texts = {"text": [f"text {row}" for row in range(rows)], "topic": [TOPICS[row % 3] for row in range(rows)]}
    source = write_texts(folder / "source", [texts] * SHARDS)
    return (
        publish_scores(folder / "one", source, one, where="score >= 1.5"),
        publish_scores(folder / "other", source, other, where="score >= 2", **changes),
    )


def two_scores(rows: int, correlation: float, seed: int = 0) -> np.ndarray[Any, Any]:
    one, other = np.random.default_rng(seed).normal(size=(2, rows))
    return np.stack([one, correlation * one + np.sqrt(1 - correlation**2) * other]).astype(np.float32)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    scores = 1.2 + 0.8 * two_scores(SHARDS * ROWS, 0.7)
    scores[0, 5] = scores[1, ROWS + 7] = np.nan
    shards = [f"{number:03}" for number in range(SHARDS)]
    by_shard = [dict(zip(shards, found.reshape(SHARDS, ROWS), strict=True)) for found in scores]
    one, other = published(folder, *by_shard)
    topics = [TOPICS[row % ROWS % 3] for row in range(SHARDS * ROWS)]
    frame = pd.DataFrame({"score": scores[0], "label": scores[1], "topic": topics})
    return Pair(folder / "source", one, other, frame.dropna())


def test_precision_and_recall_by_another_runs_scores_are_those_of_all_rows(pair: Pair) -> None:
    found = pair.evaluate(1.3)

    kept, good = pair.rows["score"] >= np.float32(1.3), pair.rows["label"] >= 2
    at = found.at_threshold
    assert at is not None
    assert at.precision is not None
    assert at.precision.low == at.precision.value == at.precision.high == (kept & good).sum() / kept.sum()
    assert at.recall.low == at.recall.value == at.recall.high == (kept & good).sum() / good.sum()
    assert (at.rows, at.rows_kept) == (len(pair.rows), kept.sum())
    assert (at.good_lost, at.bad_kept) == ((~kept & good).sum(), (kept & ~good).sum())
    assert at.alike == pytest.approx((kept == good).mean())
    assert {1.3, 1.5} < {one.threshold for one in found.thresholds}
    assert (found.positive, found.labels.rows, found.labels.good) == ("label >= 2", len(pair.rows), good.sum())
    assert all(one.labels == one.rows for one in found.labelled_strata)
    assert sum(one.good for one in found.labelled_strata) == good.sum()


def test_the_threshold_in_question_stays_if_another_is_the_same_float32(pair: Pair) -> None:
    assert pair.evaluate(1.5 + 1e-9, within="topic").threshold == 1.5 + 1e-9
    assert pair.evaluate(1.5 + 1e-9).at_threshold is not None


def test_each_value_of_a_column_has_its_own_figures_the_lowest_precision_first(pair: Pair) -> None:
    found = pair.evaluate(within="topic")

    kept, good = pair.rows["score"] >= 1.5, pair.rows["label"] >= 2
    precision = good[kept].groupby(pair.rows["topic"]).mean()
    shown = {topic: one.precision.value for topic, one in found.values.items() if one.precision}
    assert shown == pytest.approx(precision.to_dict())
    assert list(shown) == list(precision.sort_values().index)
    assert found.agreement is not None
    for topic, rows in pair.rows.groupby("topic"):
        exact = rows["score"].rank().corr(rows["label"].rank())
        assert found.agreement.values[str(topic)] == pytest.approx(exact, abs=0.005)


SHAPES = {
    "logits": lambda normal: 2 * normal,
    "probabilities near 1": lambda normal: 1 / (1 + np.exp(-5 - 2 * normal)),
    "whole numbers": lambda normal: np.round(3 + normal),
}


@pytest.mark.parametrize("correlation", [-0.5, 0.1, 0.99])
@pytest.mark.parametrize("shape", SHAPES)
def test_spearmans_correlation_is_that_of_the_exact_ranks(shape: str, correlation: float, tmp_path: Path) -> None:
    scores = SHAPES[shape](two_scores(2 * ROWS, correlation)).astype(np.float32)
    one, other = (dict(zip(("000", "001"), found.reshape(2, ROWS), strict=True)) for found in scores)

    found = evaluated(*published(tmp_path, one, other)).agreement

    exact = pd.Series(scores[0]).rank().corr(pd.Series(scores[1]).rank())
    assert found is not None
    assert found.spearman == pytest.approx(exact, abs=0.001)


def test_rows_of_one_score_have_no_correlation(tmp_path: Path) -> None:
    found = evaluated(*published(tmp_path, {"000": [2.0, 2.0, 2.0]}, {"000": [1.0, 2.0, 3.0]}, rows=3))

    assert found.agreement is not None
    assert found.agreement.spearman is None
    assert "spearman -" in found.lines()


def test_the_rows_that_differ_most_in_rank_come_first_with_their_texts(pair: Pair) -> None:
    found = pair.evaluate(disagreeing=20).disagreeing

    ranks = pair.rows[["score", "label"]].rank(pct=True)
    furthest = (ranks["score"] - ranks["label"]).abs().sort_values(ascending=False)
    places = [int(row.shard) * ROWS + row.row for row in found]
    assert len(found) == 20
    assert furthest[places].min() > furthest.iloc[30]
    for row, place in zip(found, places, strict=True):
        assert (row.score, row.label) == (pair.rows["score"][place], pair.rows["label"][place])
        assert (row.rank, row.label_rank) == pytest.approx(tuple(ranks.loc[place]), abs=0.02)
        assert row.text == f"text {row.row}"
    distances = [abs(row.rank - row.label_rank) for row in found]
    assert distances == sorted(distances, reverse=True)


def test_what_only_one_run_has_is_left_out_and_counted(tmp_path: Path) -> None:
    nan = float("nan")
    one = {"000": [1.0, 2.0, 3.0, nan], "001": [1.0, 2.0, 3.0, 4.0]}
    other = {"000": [1.0, nan, 3.0], "002": [1.0, nan]}

    found = evaluated(*published(tmp_path, one, other))

    assert found.labels.rows == 2
    assert f"left out 5 rows of {tmp_path / 'one'}, 1 whole shard among them" in found.lines()
    assert f"left out 1 row of {tmp_path / 'other'}, 1 whole shard among them" in found.lines()


def test_parts_of_a_file_are_compared_row_by_row(tmp_path: Path) -> None:
    scores = [float(row) for row in range(10)]
    one, _ = published(tmp_path, {"000": scores}, {"000": scores}, rows=10)
    part = publish_scores(tmp_path / "part", tmp_path / "source", {"000": scores[4:]}, first_row=4, where="score >= 5")

    for runs in ((one, part), (part, one)):
        found = evaluated(*runs, 5.0, positive="label >= 5")
        assert found.at_threshold is not None
        assert (found.labels.rows, found.at_threshold.alike) == (6, 1)


def test_shards_of_other_bytes_are_not_compared(tmp_path: Path) -> None:
    one, _ = published(tmp_path, {"000": [1.0]}, {"000": [1.0]}, rows=1)
    _, other = published(tmp_path / "again", {"000": [1.0]}, {"000": [1.0]}, rows=2)

    with pytest.raises(UsageError, match="have no shard in common. Name runs of the same input"):
        evaluated(one, other)


def test_runs_without_a_row_in_common_and_filters_that_say_nothing_are_refused(tmp_path: Path) -> None:
    nan = float("nan")
    one, other = published(tmp_path, {"000": [1.0, nan]}, {"000": [nan, 1.0]}, rows=2)
    all_rows = publish_scores(tmp_path / "all", tmp_path / "source", {"000": [1.0, 2.0]}, where=None)

    with pytest.raises(UsageError, match="No row has a score in both"):
        evaluated(one, other)
    with pytest.raises(UsageError, match=r"all is not one threshold\. Say which of its scores are good: --positive"):
        evaluated(one, all_rows)
    assert evaluated(one, all_rows, positive="label > 1").labels.good == 0


def test_the_command_prints_agreement_and_holds_requirements(pair: Pair) -> None:
    command = ("producer", "evaluate", pair.one, "--labels", pair.other, "--input", str(pair.source))
    shown = call_command(*command, "--within", "topic", "--disagreeing", "2", environment={})
    failed = call_command(*command, "--min-precision", "0.99", "--disagreeing", "1", "--json", environment={})
    found = json.loads(failed.stdout)

    lines = shown.stdout.splitlines()
    assert shown.returncode == 0, shown.stderr
    assert f"labels   {len(pair.rows):,} of {pair.other}, score, " in shown.stdout
    assert f"spearman {found['agreement']['spearman']:.3f}" in lines
    assert [line.split()[-1] for line in lines if line.split()[1:2] == ["kept"]] == ["alike", "spearman"]
    assert lines[-1].startswith("       text ")
    assert failed.returncode == 1
    assert re.fullmatch(r"The precision at 1\.5 may be as low as .*, and --min-precision is 99\.0%\.\n", failed.stderr)
    (row,) = found["disagreeing"]
    assert row["text"] == f"text {row['row']}"


@pytest.mark.parametrize("option", [("--output", "evidence.json"), ("--update-card",), ("--unweighted",)])
def test_the_scores_of_a_run_are_no_labelled_rows_that_a_card_could_tell_of(
    pair: Pair, option: tuple[str, ...], tmp_path: Path
) -> None:
    labels = ("--labels", pair.other, "--input", str(pair.source))

    done = call_command("producer", "evaluate", pair.one, *labels, *option, environment={}, folder=tmp_path)

    assert done.returncode == 2
    assert "are about rows that were labelled" in done.stderr
    assert not [*tmp_path.glob("evidence.json")]
