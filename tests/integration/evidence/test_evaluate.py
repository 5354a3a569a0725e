"""`producer evaluate` joins labels with the stored scores of a run: precision and recall of each threshold."""

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.labelled_runs import ROWS, SHARDS, THRESHOLD, LabelledRun, write
from support.models import tiny_classifier

SCORED = SHARDS * ROWS - 1


@pytest.fixture
def labels(run: LabelledRun) -> Path:
    """Eighty labelled rows."""
    return run.labelled(run.sheet("--rows", 80))


@pytest.fixture
def census(run: LabelledRun) -> Path:
    """All rows, labelled."""
    return run.labelled(run.sheet("--rows", 1_000))


def evaluated(run: LabelledRun, *arguments: object, **options: Any) -> Any:
    return json.loads("\n".join(run.command("evaluate", "--json", "--labels", *arguments, **options)))


def exact(value: float) -> Any:
    return {name: pytest.approx(value) for name in ("value", "low", "high")}


def figures_of(rows: pd.DataFrame, threshold: float) -> dict[str, Any]:
    """The figures of a threshold, by the labels of all rows."""
    kept, good = rows["score"] >= threshold, rows["good"]
    return {
        "rows": len(rows),
        "rows_kept": kept.sum(),
        "precision": exact(good[kept].mean()),
        "recall": exact((kept & good).sum() / good.sum()),
        "good_lost": (good & ~kept).sum(),
        "bad_kept": (kept & ~good).sum(),
    }


def figures(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("rows", "rows_kept", "precision", "recall", "good_lost", "bad_kept")}


def test_labels_of_all_rows_give_exact_figures_at_each_threshold_and_each_value(run: LabelledRun, census: Path) -> None:
    source = ("--input", run.source, "--within", "topic")

    found = evaluated(run, census, "--at", 3.1, "--at", THRESHOLD, *source)
    drawn_within = run.labelled(run.sheet("--rows", 1_000, "--within", "topic"))
    of_sheet_within = evaluated(run, drawn_within, "--input", run.source)

    assert len(found["thresholds"]) > 8
    assert {3.1, THRESHOLD} <= {one["threshold"] for one in found["thresholds"]}
    for one in found["thresholds"]:
        assert figures(one) == figures_of(run.rows, one["threshold"])
    assert found["threshold"] == 3.1
    with_topic = run.rows.dropna(subset="topic")
    by_topic = {value: rows for value, rows in with_topic.groupby("topic")}
    for shown, threshold in ((found, 3.1), (of_sheet_within, THRESHOLD)):
        assert {value: figures(one) for value, one in shown["values"].items()} == {
            value: figures_of(rows, threshold) for value, rows in by_topic.items()
        }
        lows = [one["precision"]["low"] for one in shown["values"].values()]
        assert lows == sorted(lows)
    assert figures(of_sheet_within["thresholds"][0])["rows"] == len(with_topic)
    for sheet in (census, drawn_within):
        said = run.command("evaluate", "--labels", sheet, *source)
        assert said[-1] == f"{SCORED - len(with_topic)} scored rows, whose topic is null, are in no line of a value."


def test_a_few_labels_give_intervals_around_the_truth_and_the_exact_share_kept(run: LabelledRun, labels: Path) -> None:
    lines = run.command("evaluate", "--labels", labels, "--judge", "a-model/v2")
    found = evaluated(run, labels, "--judge", "a-model/v2")

    kept = len(pd.read_parquet(run.output / "data"))
    (at,) = (one for one in found["thresholds"] if one["threshold"] == THRESHOLD)
    assert (at["rows"], at["rows_kept"]) == (SCORED, kept)
    is_kept, is_good = run.rows["score"] >= THRESHOLD, run.rows["good"]
    for name, among in (("precision", is_kept), ("recall", is_good)):
        assert at[name]["low"] < (is_kept & is_good).sum() / among.sum() < at[name]["high"]
    assert lines[0] == f"evaluate {run.output}, score"
    assert lines[1].startswith(f"labels   80 of {labels.name}, ")
    assert lines[1].endswith(" good by label = 1")
    assert lines[2] == "judge    a-model/v2: figures are agreement with this model"
    (line,) = (line for line in lines if line.lstrip().startswith(f"{THRESHOLD}*"))
    assert line.split()[1] == f"{kept / SCORED:.1%}"
    assert found["judge"] == "a-model/v2"
    assert len(found["labels"]["sha256"]) == 64
    assert evaluated(run, labels, "--judge", "a-model/v2") == found


def test_grades_are_compared_with_the_runs_threshold_if_another_is_in_question(run: LabelledRun, labels: Path) -> None:
    table = pq.read_table(labels)
    grades = [str(4.5 if label == "1.0" else 2.0) for label in table["label"].to_pylist()]
    write(labels, table, label=grades)

    found, other = evaluated(run, labels), evaluated(run, labels, "--at", 5)

    assert found["positive"] == other["positive"] == f"label >= {THRESHOLD}"
    assert found["labels"]["good"] == other["labels"]["good"] == grades.count("4.5")
    assert evaluated(run, labels, "--positive", "label > 2")["labels"]["good"] == grades.count("4.5")


def test_the_chosen_threshold_comes_with_the_command_that_applies_it(run: LabelledRun, census: Path) -> None:
    found = evaluated(run, census)["thresholds"]
    lowest = next(one for one in found if one["precision"]["low"] >= 0.6)

    *_, line = run.command("evaluate", "--labels", census, "--choose", "precision=60%", "--input", run.source)

    chosen, _, command = line.partition(". producer refilter ")
    place, option, where, *rest = shlex.split(command)
    assert chosen == f"Chosen: {lowest['threshold']:.6g}"
    assert (place, option, rest) == (str(run.output), "--where", ["--input", str(run.source), "--output", "…"])
    again = run.refiltered(where=where)
    assert len(pd.read_parquet(again / "data")) == lowest["rows_kept"]
    *_, at_recall = run.command("evaluate", "--labels", census, "--choose", "recall=0.6")
    assert f"Chosen: {max(one['threshold'] for one in found if one['recall']['low'] >= 0.6):.6g}. " in at_recall


def test_a_gate_ends_with_1_unless_the_lower_limits_hold(run: LabelledRun, labels: Path) -> None:
    (at,) = (one for one in evaluated(run, labels)["thresholds"] if one["threshold"] == THRESHOLD)
    low, low_recall = at["precision"]["low"], at["recall"]["low"]

    run.command("evaluate", "--labels", labels, "--min-precision", low - 0.001)
    said = run.command("evaluate", "--labels", labels, "--min-recall", 0.99, exit_code=1)

    assert said[-1] == f"The recall at {THRESHOLD} may be as low as {low_recall:.1%}, and --min-recall is 99.0%."


def test_a_share_that_no_threshold_reaches_ends_with_1_and_table_and_evidence_are_there(
    run: LabelledRun, labels: Path, tmp_path: Path
) -> None:
    evidence = tmp_path / "evidence.json"

    said = run.command("evaluate", "--labels", labels, "--choose", "precision=0.999", "--output", evidence, exit_code=1)

    assert said[-1].startswith("No threshold has a precision of 99.9% for certain: the highest lower limit is ")
    assert any(line.lstrip().startswith(f"{THRESHOLD}*") for line in said)
    assert json.loads(evidence.read_text())["threshold"] == THRESHOLD


def test_labels_of_a_simple_sample_need_no_weights(run: LabelledRun, tmp_path: Path) -> None:
    chosen = run.rows.sample(100, random_state=1)
    own = tmp_path / "own.csv"
    chosen.reset_index()[["shard", "row"]].assign(label=chosen["good"].to_numpy()).to_csv(own, index=False)

    assert run.refused("evaluate", "--labels", own).endswith(
        "Add --unweighted if all rows had the same chance to be drawn."
    )
    lines = run.command("evaluate", "--labels", own, "--unweighted")

    assert "         unweighted: as if each row had the same chance to be labelled" in lines
    found = evaluated(run, own, "--unweighted")
    (at,) = (one for one in found["thresholds"] if one["threshold"] == THRESHOLD)
    kept = chosen[chosen["score"] >= THRESHOLD]
    assert at["precision"]["value"] == pytest.approx(kept["good"].mean())
    assert found["positive"] == "label"


def test_the_labels_of_another_run_are_refused(run: LabelledRun, labels: Path, tmp_path: Path) -> None:
    by_other = run.runs.by(tiny_classifier(tmp_path / "other", seed=1)).publish(run.source, "by-other")
    table = pq.read_table(run.source / "000_00000.parquet")
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/other.parquet")
    of_other = run.runs.publish(tmp_path / "in", "of-other")

    assert run.refused("evaluate", "--labels", labels, output=by_other).endswith(
        "has another score than when it was drawn: sheet-0.parquet is of another run, or of another score column."
    )
    assert "has no score in this run, so it was not drawn from it. Name the run" in run.refused(
        "evaluate", "--labels", labels, output=of_other
    )


def test_what_cannot_be_evaluated_is_one_sentence(run: LabelledRun, labels: Path) -> None:
    table, changed = pq.read_table(labels), run.files / "changed.parquet"
    count, said, strata = len(table), table["label"].to_pylist(), table["stratum"].to_pylist()
    own = [name == strata[0] for name in strata]
    unlabelled = [None if here else label for here, label in zip(own, said, strict=True)]
    other = run.labelled(run.sheet("--rows", 80, "--at", 2.9, "--seed", 1))

    for message, values in (
        ("No label of changed.parquet is good by label = 1, so they do not", {"label": ["0"] * count}),
        ("All labels of changed.parquet are good by label >= 3.25, so they", {"label": ["4"] * count}),
        ("is labelled in changed.parquet. Label at least one of each stratum.", {"label": unlabelled}),
        ("rows were added, weights were changed, or more shards", {"weight": [1.1] * count}),
    ):
        write(changed, table, **values)
        assert message in run.refused("evaluate", "--labels", changed)
    for message, rows in (
        ("changed.parquet has no row of the strata of ", table.filter(pa.array(own))),
        ("has rows that were drawn around different thresholds.", pa.concat_tables([table, pq.read_table(other)])),
    ):
        pq.write_table(rows, changed)
        assert message in run.refused("evaluate", "--labels", changed)


def test_a_question_that_the_labels_or_the_run_cannot_answer_is_one_sentence(run: LabelledRun, labels: Path) -> None:
    within = run.labelled(run.sheet("--rows", 80, "--within", "topic"))
    unlike = run.refiltered(where="score < 3")

    for message, sheet, arguments, output in (
        ("No row has a score of 99 or more. Name another threshold with --at.", labels, ("--at", 99), None),
        ("topic is read from the input. Name the input with --input", labels, ("--within", "topic"), None),
        ("were drawn within topic, not within language.", within, ("--within", "language"), None),
        ("is not one threshold. Name the one to judge with --at.", labels, ("--min-recall", 0.5), unlike),
        (
            "is not one threshold. Name the one to judge with --at.",
            labels,
            ("--within", "topic", "--input", run.source),
            unlike,
        ),
    ):
        assert message in run.refused("evaluate", "--labels", sheet, *arguments, output=output)
