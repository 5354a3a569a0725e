"""`producer scores` and the Runs page show how scores are spread, and rows around a threshold with their texts."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Histogram
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.flower.pages import rows_json, run_json
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.options import Ranking
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.publishing.card_contents import kept_rows
from shardsift.producer.scores.distribution import chart, score_bins
from shardsift.producer.scores.scored_run import edges_of_run, near_lines, rows_of_run_near, scored_run
from shardsift.producer.status import run_status
from support.input_shards import with_first_texts
from support.models import tiny_classifier
from support.outputs import published_rows
from support.processes import call_command
from support.small_run import Runs, rounding, score, shared_runs

SHARDS, ROWS = 3, 40


@dataclass(frozen=True, kw_only=True)
class Scored(Runs):
    """A run of fineweb-edu's kind over `source`, published at `output`."""

    settings: Settings
    source: Path
    output: Path

    @property
    def spec(self) -> RunSpec:
        return self.specs[self.output]

    @property
    def rows(self) -> pd.DataFrame:
        """All lines of the scores files."""
        return rows_in(self.output)

    def scores(self, *arguments: object) -> list[str]:
        """What the command prints."""
        environment = {"REDIS_URL": self.settings.redis_url}
        done = call_command("producer", "scores", *map(str, arguments), environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def rows_in(output: Path) -> pd.DataFrame:
    rows: pd.DataFrame = published_rows(output, "scores").to_pandas()
    return rows


@pytest.fixture(scope="module")
def scored(redis_url: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    folder = tmp_path_factory.mktemp("scores")
    first, *_ = write_shards(folder / "source", shards=SHARDS, rows=ROWS, seed=2)
    pq.write_table(with_first_texts(pq.read_table(first), [None]), first)
    runs = shared_runs(redis_url, tiny_model, folder)
    output = runs.publish_plan(rounding(plan_run(runs.options(folder / "source", where="score >= 2.5"))))
    settings = Settings(redis_url=redis_url)
    return Scored(**vars(runs), settings=settings, source=folder / "source", output=output)


@pytest.fixture
def three_labels(scored: Scored, tmp_path: Path) -> Runs:
    return replace(scored, folder=tmp_path).by(tiny_classifier(tmp_path / "model", labels=3))


def test_the_command_shows_what_each_threshold_keeps(scored: Scored) -> None:
    lines = scored.scores(scored.output)
    found = json.loads("\n".join(scored.scores(scored.spec.run_id, "--json")))
    frame = scored.rows
    kept, errored = (frame["score"] >= 2.5).sum(), frame["error"].notna().sum()
    share = f"{kept / (SHARDS * ROWS - 1):.1%}"

    assert f"shards   {SHARDS} of {SHARDS}" in lines
    assert f"rows     {SHARDS * ROWS} in, {errored} null text (errored)" in lines
    assert f"kept     {kept} ({kept / (SHARDS * ROWS):.2%}) by score >= 2.5" in lines
    assert any(line.split()[:1] == ["2.50"] and line.split()[3] == share for line in lines)
    (column,) = found["columns"]
    assert [one["at_least"] for one in column["bins"] if one["start"] == 2.5] == [kept]
    assert sum(one["rows"] for one in column["bins"]) == column["rows"] == SHARDS * ROWS - 1


def test_the_exact_edges_of_equal_parts_are_known_before_a_cut(scored: Scored) -> None:
    run = scored_run(scored.spec.run_id, scored.settings)
    best_first = scored.rows["score"].dropna().sort_values(ascending=False)
    source = pd.concat(map(pd.read_parquet, sorted(scored.source.glob("*.parquet"))), ignore_index=True)
    tokens = source["token_count"][best_first.index]

    quarters = [float(best_first.iloc[math.ceil(share * len(best_first)) - 1]) for share in (0.75, 0.5, 0.25)]
    assert [edge.score for edge in run.edges(4)] == quarters
    tenth = run.edges(10, by="token_count")[-1]
    kept = best_first >= tenth.score
    assert (tenth.rows, tenth.weight, tenth.total) == (kept.sum(), tokens[kept].sum(), tokens.sum())
    assert tokens[best_first > tenth.score].sum() < 0.1 * tokens.sum() <= tenth.weight
    with pytest.raises(UsageError, match="The column token_count is read from the input. Name the input with --input"):
        edges_of_run(scored_run(str(scored.output), scored.settings), Ranking(by="token_count"), 4, source=())


@pytest.mark.parametrize(("where", "threshold"), [("{} >= 0.3", 0.3), ("{} > 0.2 AND text != ''", None)])
def test_all_that_is_shown_of_scores_is_of_the_label_that_the_filter_names(
    scored: Scored, three_labels: Runs, where: str, threshold: float | None
) -> None:
    label = "score_LABEL_1"
    output = three_labels.publish(scored.source, where=where.format(label.upper()))
    spec, scores = scored.specs[output], rows_in(output)[label].dropna()
    in_bins = (scores * 20 // 1).astype(int).value_counts().to_dict()

    status, page = run_status(scored.ledger, spec.run_id), run_json(scored.ledger, spec.run_id)
    shown: Any = rows_json(scored.ledger, spec.run_id)
    run = scored_run(spec.run_id, scored.settings)
    near = rows_of_run_near(run, None, near=0.3, count=5, source=())

    assert {column: one.rows_by_bin for column, one in status.histograms.items()} == {label: in_bins}
    (chart,) = page["scores"]  # type: ignore[misc, attr-defined]
    assert (chart["column"], chart["threshold"]) == (label, threshold)
    assert (shown["column"], shown["threshold"]) == (label, threshold)
    assert next(iter(run.histograms)) == label
    nearest = sorted(scores, key=lambda score: abs(score - 0.3))[:5]
    assert sorted(row.score for row in near) == pytest.approx(sorted(nearest))
    assert (
        f'ORDER BY "{label}"' in kept_rows(spec, {"rows_in": 2, "rows_kept": 1, "rows_dropped": 1}, "").how_to_load
    ) == (threshold is not None)

    scored.ledger.requeue(spec.run_id, {receipt.shard: "lost" for receipt in run.receipts})
    assert [one.rows for one in run_status(scored.ledger, spec.run_id).histograms.values()] == [0]


def test_a_run_that_goes_on_shows_its_finished_shards(scored: Scored, tmp_path: Path) -> None:
    plan = plan_run(replace(scored, folder=tmp_path).options(scored.source, where="score >= 2.5"))
    scored.ledger.create_run(plan.spec, plan.shards, now=1.0)
    with pytest.raises(UsageError, match="No shard of .* is done yet"):
        scored_run(plan.spec.run_id, scored.settings)
    with pytest.raises(UsageError, match="No shard of .* is done yet"):
        rows_json(scored.ledger, plan.spec.run_id)
    score(scored.ledger, scored.scorer, plan.spec, plan.shards[1:2], scratch=tmp_path / "scratch")

    run = scored_run(plan.spec.run_id, scored.settings)
    (row,) = rows_of_run_near(run, None, near=2.5, count=1, source=())

    found = run.as_json()
    assert (found["shards_done"], found["shards"], found["rows"]) == (1, SHARDS, ROWS)
    assert (row.shard, bool(row.text)) == (plan.shards[1].name, True)


def test_the_rows_nearest_to_a_threshold_come_with_url_and_text_of_the_input(scored: Scored) -> None:
    run = scored_run(str(scored.output), scored.settings)

    found = rows_of_run_near(run, None, near=2.5, count=5, source=(str(scored.source),))

    frame = scored.rows.dropna(subset="score")
    nearest = frame.iloc[(frame["score"] - 2.5).abs().argsort(kind="stable")[:5]]
    assert {(row.shard, row.row) for row in found} == set(zip(nearest["shard"], nearest["row"], strict=True))
    assert [row.score for row in found] == sorted(row.score for row in found)
    for row in found:
        (file,) = scored.source.rglob(f"{row.shard.rpartition('/')[2]}*")
        source = pq.read_table(file).slice(row.row, 1).to_pylist()[0]
        assert (row.url, row.text) == (source["url"], source["text"])


def test_an_input_without_the_shard_of_a_near_row_is_reported(scored: Scored, tmp_path: Path) -> None:
    run = scored_run(str(scored.output), scored.settings)
    (file, *_) = scored.source.rglob("*.parquet")

    with pytest.raises(UsageError, match=r"^Texts are read from the input\. Name the input with --input: it must have"):
        rows_of_run_near(run, None, near=2.5, count=SHARDS * ROWS, source=(str(file),))


def test_parts_and_counts_out_of_range_are_reported(scored: Scored) -> None:
    run = scored_run(str(scored.output), scored.settings)

    with pytest.raises(UsageError, match=r"^parts=1 is wrong: it is a whole number from 2 to 100"):
        run.edges(1)
    with pytest.raises(UsageError, match=r"^count=-1 is wrong: it is a whole number, and the least is 1"):
        run.near(2.5, count=-1)
    with pytest.raises(UsageError, match="--near nan is not a number"):
        rows_of_run_near(run, None, near=math.nan, count=1, source=())


def test_without_the_input_the_rows_have_no_text(scored: Scored) -> None:
    by_uri, by_ledger = (
        rows_of_run_near(scored_run(target, scored.settings), None, near=2.5, count=3, source=())
        for target in (str(scored.output), scored.spec.run_id)
    )

    lines = list(near_lines(by_uri))

    assert lines[1::2] == ["       (name the input with --input to see the text)"] * 3
    assert [(row.shard, row.row, row.score) for row in by_uri] == [(row.shard, row.row, row.score) for row in by_ledger]
    assert all(row.text for row in by_ledger)


def test_the_runs_page_shows_rows_of_a_finished_shard_unless_its_input_has_changed(scored: Scored) -> None:
    found: Any = rows_json(scored.ledger, scored.spec.run_id)

    scores = [row["score"] for row in found["rows"]]
    assert found["threshold"] == 2.5
    assert min(scores) < 2.5 < max(scores)
    assert all(row["text"] for row in found["rows"])
    contents = {file: file.read_bytes() for file in scored.source.glob("*.parquet")}
    try:
        for file in contents:
            pq.write_table(pq.read_table(file)[:5], file)
        with pytest.raises(ShardError, match="has other bytes than those that were scored"):
            rows_json(scored.ledger, scored.spec.run_id)
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


@pytest.mark.usefixtures("pictures")
def test_the_curve_of_the_picture_has_the_keep_rates_of_the_table() -> None:
    """Not in unit/: matplotlib starts a process to look for fonts, the first time that it is used on a machine."""
    logits = Histogram(bins_per_unit=4, rows_by_bin={-1: 10, 0: 40, 9: 20, 10: 10, 12: 15, 14: 5})

    _, rate = chart({"score": logits}, title="a run", where="score >= 2.5").axes

    curve, threshold = rate.lines
    assert list(threshold.get_xdata()) == [2.5, 2.5]
    assert list(curve.get_ydata()) == [float(one.at_least) for one in score_bins(logits)]  # of 100 rows
