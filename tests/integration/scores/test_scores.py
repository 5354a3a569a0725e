"""`producer scores` counts what the score files hold, and shows rows around a threshold with their texts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from fleet.errors import ShardError, UsageError
from fleet.ledger import Ledger
from fleet.process.settings import Settings
from fleet.run.scorers import published_run
from fleet.run.spec import RunSpec
from producer.local.demo_data import write_shards
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run
from producer.scores.distribution import Distribution, chart, check_chart
from producer.scores.examples import examples
from producer.scores.near import near_lines, rows_near, rows_of_run_near
from producer.scores.read import published_distributions, report_of, scored_run
from producer.scores.shown_rows import shown_rows
from producer.verify.source import source_shards
from support.models import tiny_classifier
from support.processes import call_command
from support.records import a_shard, a_spec
from support.small_run import publish, publish_plan, rounding, score
from worker.scoring.load import load_scorer
from worker.scoring.sequence_classifier import SequenceClassifier

SHARDS, ROWS = 3, 40


@dataclass(frozen=True)
class Scored:
    """A published run of fineweb-edu's kind."""

    redis_url: str
    ledger: Ledger
    scorer: SequenceClassifier
    options: RunOptions
    spec: RunSpec
    folder: Path

    @property
    def output(self) -> str:
        return self.spec.output_uri

    @property
    def rows(self) -> pd.DataFrame:
        """All lines of the score files."""
        files = sorted(Path(self.output, "scores").rglob("*.parquet"))
        return pd.concat(map(pd.read_parquet, files), ignore_index=True)

    @property
    def settings(self) -> Settings:
        return Settings(redis_url=self.redis_url)

    def scores(self, *arguments: object) -> list[str]:
        """What the command prints."""
        done = call_command("producer", "scores", *map(str, arguments), environment={"REDIS_URL": self.redis_url})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def scored(shared_redis_url: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    folder = tmp_path_factory.mktemp("scores")
    write_shards(folder / "source", shards=SHARDS, rows=ROWS, seed=2)
    first = folder / "source/000_00000.parquet"
    table = pq.read_table(first)
    texts = pa.array([None, *table["text"].to_pylist()[1:]])
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", texts), first)
    options = RunOptions(
        input_uris=(str(folder / "source"),),
        models=(str(tiny_model),),
        dtype="float32",
        where="score >= 2.5",
        output_uri=str(folder / "out"),
    )
    scorer = load_scorer(str(tiny_model), "float32", parity_rows=0, threads=1)
    with redis.Redis.from_url(shared_redis_url, decode_responses=True) as client:
        ledger = Ledger(client)
        plan = rounding(plan_run(options))
        publish_plan(ledger, scorer, plan, scratch=folder / "scratch")
        yield Scored(shared_redis_url, ledger, scorer, options, plan.spec, folder)


def test_the_distribution_is_that_of_the_score_files(scored: Scored) -> None:
    (found,) = published_distributions(published_run(scored.output))
    scores = scored.rows["score"].dropna()

    assert found.rows == len(scores) == SHARDS * ROWS - 1
    assert found.rows_by_step == {
        int(step): int(rows) for step, rows in (scores.astype(float) * 1000 // 1).value_counts().sort_index().items()
    }
    assert found.int_scores == scored.rows["int_score"].dropna().astype(int).value_counts().sort_index().to_dict()
    for threshold in (2.0, 2.5, 3.0):
        assert found.at_least(threshold) == (scores >= threshold).sum()


def test_the_command_shows_what_a_threshold_keeps_and_where_the_rounded_score_differs(scored: Scored) -> None:
    lines = scored.scores(scored.output)
    frame = scored.rows
    kept, errored = (frame["score"] >= 2.5).sum(), frame["error"].notna().sum()

    assert f"shards   {SHARDS} of {SHARDS}" in lines
    assert f"rows     {SHARDS * ROWS} in, {errored} null text (errored)" in lines
    assert f"kept     {kept} ({kept / (SHARDS * ROWS):.2%}) by score >= 2.5" in lines
    assert any(line.split() == [">=", "2.5", str(kept), f"{kept / (SHARDS * ROWS - 1):.2%}"] for line in lines)
    (three,) = [line for line in lines if line.split()[:2] == [">=", "3"]]
    raw, rounded = (frame["score"] >= 3).sum(), (frame["int_score"] >= 3).sum()
    assert raw < rounded
    assert three.split()[2] == str(raw)
    assert f"int_score >= 3 keeps {rounded}: it is the score rounded, half to even" in three


def test_json_and_png_have_the_same_numbers(scored: Scored, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = json.loads("\n".join(scored.scores(scored.spec.run_id, "--json", "--png", tmp_path / "scores.png")))
    (column,) = found["distributions"]

    assert found["name"] == scored.spec.run_id
    assert column["quantiles"]["0.5"] == pytest.approx(scored.rows["score"].median(), abs=0.01)
    assert all(0 <= one["share"] <= 1 for one in column["keep_rates"])
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_of_the_picture_has_the_keep_rates_of_the_table() -> None:
    pytest.importorskip("matplotlib")
    rows_by_step = {10: 3, 95: 1, 98: 4, 99: 392}  # almost all of them near 1, as those of a sure classifier
    found = Distribution(column="score", steps_per_unit=100, rows_by_step=rows_by_step)

    _, rate = chart([found], title="a run").axes

    (curve,) = rate.lines
    edges, shares = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    assert curve.get_drawstyle() == "steps-post"
    for threshold in (*found.thresholds(), 0.97, 0.99):
        drawn = shares[np.searchsorted(edges, threshold, side="right") - 1]
        assert drawn == pytest.approx(100 * found.at_least(threshold) / found.rows)


class TestExamples:
    """The rows that the Runs page shows are those of the input, with their scores, and little is read for them."""

    def name(self, scored: Scored) -> str:
        return next(
            shard.name for shard in scored.ledger.shards(scored.spec.run_id) if shard.name.endswith("000_00001")
        )

    def test_they_have_the_texts_of_the_input_and_are_of_their_kind(self, scored: Scored) -> None:
        found = examples(scored.ledger, scored.spec.run_id, self.name(scored), seed=1)
        source = pd.read_parquet(scored.folder / "source/000_00001.parquet")
        scores = pd.read_parquet(Path(scored.output, "scores", f"{found.shard}.parquet"))["score"]

        assert (found.rows, found.threshold) == (ROWS, 2.5)
        assert found.near
        assert found.kept
        assert found.dropped
        for row in (*found.near, *found.kept, *found.dropped):
            assert " ".join(source["text"][row.row].split()).startswith(row.text.removesuffix("…"))
            assert row.url == source["url"][row.row]
            assert row.score == pytest.approx(scores[row.row], abs=0.001)
        assert all(row.score >= 2.5 for row in found.kept)
        assert all(row.score < 2.5 for row in found.dropped)

    def test_another_seed_chooses_other_rows(self, scored: Scored) -> None:
        name = self.name(scored)
        one, same, other = (examples(scored.ledger, scored.spec.run_id, name, seed=seed) for seed in (1, 1, 2))

        assert one == same
        assert one != other

    def test_only_the_beginning_of_a_shard_is_read(self, scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("producer.scores.examples.MOST_ROWS", 10)

        found = examples(scored.ledger, scored.spec.run_id, self.name(scored), seed=1)

        assert found.rows == 10
        assert all(row.row < 10 for row in (*found.near, *found.kept, *found.dropped))

    def test_rows_of_an_input_that_has_changed_are_not_shown(self, scored: Scored) -> None:
        file = scored.folder / "source/000_00001.parquet"
        content = file.read_bytes()
        try:
            pq.write_table(pq.read_table(file)[:5], file)
            with pytest.raises(ShardError, match="has other bytes than those that were scored"):
                examples(scored.ledger, scored.spec.run_id, self.name(scored), seed=1)
        finally:
            file.write_bytes(content)

    def test_a_shard_that_is_not_done_is_refused(self, ledger: Ledger) -> None:
        spec, shard = a_spec(), a_shard("a")
        ledger.create_run(spec, [shard], now=1.0)

        with pytest.raises(UsageError, match="Shard a of .* is not done yet"):
            examples(ledger, spec.run_id, "a", seed=1)


def test_labels_are_counted(scored: Scored, tmp_path: Path) -> None:
    model = tiny_classifier(tmp_path / "model", labels=3)
    options = RunOptions(
        input_uris=scored.options.input_uris,
        models=(str(model),),
        dtype="float32",
        keep_all=True,
        output_uri=str(tmp_path / "out"),
    )
    spec = publish(
        scored.ledger, load_scorer(str(model), "float32", parity_rows=0, threads=1), options, scratch=tmp_path / "s"
    )

    (found,) = published_distributions(published_run(spec.output_uri))
    labels = pd.concat(map(pd.read_parquet, Path(spec.output_uri, "scores").rglob("*.parquet")))["label"]

    assert found.labels == labels.value_counts().to_dict()
    label, rows = next(iter(found.labels.items()))
    lines = report_of(scored_run(spec.output_uri, scored.settings)).lines()
    assert any(line.split()[:2] == [label, str(rows)] for line in lines)


def test_a_run_that_goes_on_shows_its_finished_shards(scored: Scored, tmp_path: Path) -> None:
    plan = plan_run(RunOptions(**{**vars(scored.options), "output_uri": str(tmp_path / "out")}))
    scored.ledger.create_run(plan.spec, plan.shards, now=1.0)
    with pytest.raises(UsageError, match="No shard of .* is done yet"):
        scored_run(plan.spec.run_id, scored.settings)
    score(scored.ledger, scored.scorer, plan.spec, plan.shards[1:2], scratch=tmp_path / "scratch")

    found = report_of(scored_run(plan.spec.run_id, scored.settings))
    of_shard = scored.rows[scored.rows["shard"] == plan.shards[1].name]["score"]

    assert (found.shards_done, found.shards, found.rows) == (1, SHARDS, ROWS)
    for threshold in (2.0, 2.25, 2.5):
        assert found.distributions[0].at_least(threshold) == (of_shard >= threshold).sum()
    with pytest.raises(UsageError, match="not published yet"):
        rows_of_run_near(
            scored_run(plan.spec.run_id, scored.settings), None, near=2.5, within=1, count=1, seed=0, source=()
        )


def test_of_several_score_columns_one_must_be_named(scored: Scored) -> None:
    run, edu = scored_run(scored.output, scored.settings), scored.spec.scorings[0]
    two = replace(run, spec=replace(run.spec, scorings=(edu, replace(edu, score_column="tox_score"))))

    with pytest.raises(UsageError, match="several score columns: score, tox_score. Name one with --column"):
        rows_of_run_near(two, None, near=2.5, within=1, count=1, seed=0, source=())


def test_rows_near_a_threshold_come_with_url_and_text_of_the_input(scored: Scored) -> None:
    published = published_run(scored.output)
    shards = source_shards(scored.options.input_uris, published)
    near = {"near": 2.5, "within": 0.2, "source": shards}

    found = rows_near(published, scored.spec.scorings[0], count=1000, seed=0, **near)
    some = rows_near(published, scored.spec.scorings[0], count=5, seed=1, **near)

    frame = scored.rows
    expected = frame[(frame["score"] - 2.5).abs() <= 0.2]
    assert {(row.shard, row.row) for row in found} == set(zip(expected["shard"], expected["row"], strict=True))
    for row in found:
        source = pq.read_table(shards[row.shard].uri).slice(row.row, 1).to_pylist()[0]
        assert (row.url, row.text) == (source["url"], source["text"])
    assert len(some) == 5
    assert {(row.shard, row.row) for row in some} < {(row.shard, row.row) for row in found}
    assert some == rows_near(published, scored.spec.scorings[0], count=5, seed=1, **near)


def test_without_the_input_the_rows_have_no_text(scored: Scored) -> None:
    near = {"near": 2.5, "within": 0.2, "count": 3, "seed": 0, "source": ()}
    by_uri, by_ledger = (
        rows_of_run_near(scored_run(target, scored.settings), None, **near)
        for target in (scored.output, scored.spec.run_id)
    )

    lines = list(near_lines(by_uri, near=2.5, within=0.2))

    assert lines[1::2] == ["       (name the input with --source to see the text)"] * 3
    assert [(row.shard, row.row, row.score) for row in by_uri] == [(row.shard, row.row, row.score) for row in by_ledger]
    assert all(row.text for row in by_ledger)


def test_the_text_of_a_template_or_a_pair_is_shown_as_it_was_scored(scored: Scored) -> None:
    (edu,) = scored.spec.scorings
    file = scored.folder / "source/000_00001.parquet"
    row = pq.read_table(file).slice(7, 1).to_pylist()[0]
    filled = replace(edu, text_template="<{url}> {text}", text_columns=("url", "text"))
    pair = replace(edu, text_pair_column="url")

    shown = [shown_rows(str(file), [7], scored.spec, scoring)[7] for scoring in (filled, pair)]

    assert [one.text for one in shown] == [f"<{row['url']}> {row['text']}", f"{row['text']}\n\n{row['url']}"]
    assert [one.url for one in shown] == [row["url"]] * 2


def test_what_cannot_be_shown_is_said(scored: Scored) -> None:
    with pytest.raises(UsageError, match=r"The run has no score column 'edu'\. There are: score\."):
        scored_run(scored.output, scored.settings).scoring("edu")
    with pytest.raises(UsageError, match=r"Cannot write the chart to /nowhere/scores\.png\."):
        check_chart(Path("/nowhere/scores.png"))


def test_a_score_that_no_row_has_says_how_to_find_some(scored: Scored) -> None:
    assert scored.scores(scored.output, "--near", 99) == [
        "No row has a score within 0.1 of 99. Widen it with --within."
    ]
