"""`producer sample` draws rows of a run to label, and shows the texts that were scored and nothing of their scores."""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardsift.producer.evidence.rows_to_label import rows_to_label
from shardsift.producer.evidence.sheet import read_labels
from shardsift.producer.scores.scored_run import ScoredRun, scored_run
from support.labelled_runs import ROWS, SHARDS, THRESHOLD, LabelledRun
from support.line_files import write_json_lines
from support.models import tiny_classifier

SCORED = SHARDS * ROWS - 1


@pytest.fixture
def scored(run: LabelledRun) -> ScoredRun:
    settings: Any = None  # a published run needs none
    return scored_run(str(run.output), settings)


def places(sheet: Path) -> set[tuple[str, int]]:
    return places_of(pq.read_table(sheet))


def places_of(table: pa.Table) -> set[tuple[str, int]]:
    return {*zip(table["shard"].to_pylist(), table["row"].to_pylist(), strict=True)}


def check_weights(sheet: Path, run: LabelledRun, *, scored: int = SCORED) -> None:
    """Check that the weights add up to the scored rows, and to those of each stratum."""
    table = read_labels(sheet).table
    strata = {*read_labels(sheet).strata}
    assert sum(table["weight"].to_pylist()) == pytest.approx(scored)
    for stratum in strata:
        rows = run.rows if stratum.within is None else run.rows[run.rows[stratum.within] == stratum.value]
        weights = [
            weight
            for name, weight in zip(table["stratum"].to_pylist(), table["weight"].to_pylist(), strict=True)
            if name == stratum.name
        ]
        assert sum(weights) == pytest.approx(sum(stratum.has(one) for one in rows["score"])), stratum
        assert len({*weights}) == 1


def test_a_sheet_has_texts_columns_and_exact_weights_but_no_score(run: LabelledRun) -> None:
    sheet = run.files / "labels.csv"

    *_, next_command = said = run.command(
        "sample", "--input", run.source, "--output", sheet, "--rows", 60, "--columns", "url,token_count"
    )

    assert said == [
        f"60 rows of 6 strata around score >= {THRESHOLD}.",
        f"Fill the column label of {sheet}, then: producer evaluate {run.output} --labels {sheet}",
    ]
    assert next_command in said
    table, rows = read_labels(sheet).table, run.rows
    assert table.column_names == ["shard", "row", "stratum", "weight", "text", "url", "token_count", "label"]
    for row in table.to_pylist():
        of_input = rows.loc[(row["shard"], row["row"])]
        assert (row["text"], row["url"], int(row["token_count"])) == (
            of_input["text"],
            of_input["url"],
            of_input["token_count"],
        )
        assert row["label"] is None
    check_weights(sheet, run)


def test_the_same_rows_are_drawn_from_receipts_in_any_order_and_format(run: LabelledRun, scored: ScoredRun) -> None:
    reversed_run = replace(scored, receipts=[*scored.receipts][::-1])

    files = [run.sheet("--rows", 40, ending=ending) for ending in (".csv", ".jsonl", ".parquet")]
    drawn = rows_to_label(reversed_run, rows=40, source=(str(run.source),)).table.to_pydict()
    assert [read_labels(file).table.to_pydict() for file in files] == [drawn] * 3
    assert places(run.sheet("--rows", 40, "--seed", 7)) != places(files[2])


def test_more_rows_stand_beside_those_that_are_labelled(run: LabelledRun) -> None:
    first = run.labelled(run.sheet("--rows", 40, "--columns", "url"))

    more = run.files / "more.parquet"
    said = run.command("sample", "--input", run.source, "--output", more, "--rows", 30, "--more", first)

    assert said[1].endswith(", where more labels narrow the intervals most.")
    earlier, table = (read_labels(file).table for file in (first, more))
    assert table[:40].drop_columns("weight") == earlier.drop_columns("weight")
    assert table["label"].to_pylist()[40:] == [None] * 30
    assert len(places(more)) == 70
    assert {row["text"] for row in table[40:].to_pylist()} <= {*run.rows["text"]}
    assert None not in table["url"].to_pylist()
    check_weights(more, run)
    run.command("evaluate", "--labels", more)  # those without a label do no harm
    rest = run.labelled(run.sheet("--rows", 1_000, "--more", more))
    assert places(rest) == {*run.rows.index}
    assert run.refused("sample", "--input", run.source, "--output", run.files / "a.csv", "--more", rest) == (
        "producer: All rows are drawn already."
    )


def test_of_each_value_of_a_column_rows_are_drawn_and_those_without_one_are_told(run: LabelledRun) -> None:
    sheet = run.files / "within.parquet"

    said = run.command("sample", "--input", run.source, "--output", sheet, "--rows", 60, "--within", "topic")

    without = sum(run.rows["topic"].isna())
    assert f"{without} scored rows, whose topic is null, are in no stratum." in said
    assert {(one.within, one.value) for one in read_labels(sheet).strata} == {("topic", "art"), ("topic", "law")}
    check_weights(sheet, run, scored=SCORED - without)
    more = run.sheet("--rows", 30, "--more", run.labelled(sheet))
    check_weights(more, run, scored=SCORED - without)


def test_without_a_threshold_rows_are_drawn_around_the_edge_of_the_best_tenth(run: LabelledRun) -> None:
    for where in ("score < 3", "token_count > 20", None):
        again = run.refiltered(f"kept-{where}", **({"where": where} if where else {"keep_all": True}))
        sheet = run.files / f"{where}.parquet"

        lines = run.command("sample", "--input", run.source, "--output", sheet, "--rows", 40, output=again)

        best_tenth = run.rows["score"].sort_values(ascending=False).iloc[(SCORED - 1) // 10]
        assert lines[:2] == [
            f"The filter has no threshold: drawn around {best_tenth:.6g}, above which is the best tenth. Another: --at",
            f"40 rows of 4 strata around score >= {best_tenth:.6g}.",
        ]
        check_weights(sheet, run)


def test_of_several_models_the_one_in_the_filter_is_sampled_or_the_one_that_is_named(
    run: LabelledRun, tiny_model: Path, tmp_path: Path
) -> None:
    several = run.runs.by(edu=tiny_model, tox=tiny_classifier(tmp_path / "other", seed=1))
    output = several.publish(run.source)
    edu, tox = (round(pd.read_parquet(output / "scores")[f"{name}_score"].median(), 3) for name in ("edu", "tox"))
    by_tox = several.refilter(output, "by-tox", where=f"tox_score >= {tox}")
    by_both = several.refilter(output, "by-both", where=f"tox_score >= {tox} AND edu_score >= {edu}")
    source = ("--input", run.source, "--output", run.files / "a.csv", "--rows", 20)

    first = run.command("sample", *source, output=by_tox)
    (run.files / "a.csv").unlink()
    named = run.command("sample", *source, "--score-column", "edu_score", "--at", edu, output=by_both)

    assert first[-2].endswith(f"around tox_score >= {tox:g}.")
    assert named[-2].endswith(f"around edu_score >= {edu:g}.")
    assert named[-1].endswith(f"--labels {run.files / 'a.csv'} --at {edu:g} --score-column edu_score")
    with_both = run.refused("sample", "--input", run.source, "--output", run.files / "b.csv", output=by_both)
    assert with_both.endswith("several score columns: edu_score, tox_score. Name one with --score-column.")


def test_the_text_of_several_columns_or_a_pair_is_shown_as_it_was_scored(run: LabelledRun, scored: ScoredRun) -> None:
    (edu,) = scored.spec.scorings

    for scoring, shown in (
        (replace(edu, text_template="<{url}> {text}", text_columns=("url", "text")), "<{url}> {text}"),
        (replace(edu, text_columns=("url", "text")), "{url}\n\n{text}"),
        (replace(edu, text_pair_column="url"), "{text}\n\n{url}"),
    ):
        spec = replace(scored.spec, scorings=(scoring,))
        table = rows_to_label(replace(scored, spec=spec), rows=20, source=(str(run.source),)).table
        rows = [run.rows.loc[(row["shard"], row["row"])] for row in table.to_pylist()]
        assert table["text"].to_pylist() == [shown.format(url=row["url"], text=row["text"]) for row in rows]


@pytest.mark.parametrize("kind", ["jsonl", "parts"])
def test_the_text_is_that_of_the_row_beside_bad_rows_and_in_parts(run: LabelledRun, tmp_path: Path, kind: str) -> None:
    rows = [{"url": f"u{row}", "text": f'text {row}\nof "many", words ' * (row % 7 + 1)} for row in range(40)]
    options: dict[str, Any] = {"max_bad_rows": 0.1}
    if kind == "jsonl":
        file = write_json_lines(tmp_path / "in/a.jsonl", rows)
        file.write_bytes(file.read_bytes().replace(b"\n", b"\n<html>\n", 2))
    else:
        (tmp_path / "in").mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in/a.parquet", row_group_size=8)
        options = {"rows_per_task": 16}
    output = run.runs.publish(tmp_path / "in", **options)
    ours = replace(run, source=tmp_path / "in", output=output)
    middle = float(pd.read_parquet(output / "scores")["score"].median())

    table = read_labels(ours.sheet("--rows", 100, "--at", middle, "--columns", "url")).table

    assert {*zip(table["url"].to_pylist(), table["text"].to_pylist(), strict=True)} == {
        (row["url"], row["text"]) for row in rows
    }
    scores = pd.read_parquet(output / "scores").dropna(subset="score")
    assert places_of(table) == {*zip(scores["shard"], scores["row"], strict=True)}


def test_what_cannot_be_sampled_is_one_sentence(run: LabelledRun) -> None:
    sheet, new = run.sheet("--rows", 40), run.files / "new.csv"
    empty, lacking = run.files / "empty.parquet", run.files / "lacking.parquet"
    pq.write_table(pq.read_table(sheet)[:0], empty)
    pq.write_table(pq.read_table(sheet).filter(pc.field("stratum") != pq.read_table(sheet)["stratum"][0]), lacking)

    for arguments, message in (
        (("--input", sheet), "is in "),
        (("--columns", "url,topics"), 'the input has no column "topics"; it has: text, id, dump'),
        (("--columns", "text"), 'the sheet has a column "text" already. Leave "text" out.'),
        (("--within", "topics"), "--within topics: name a column of the input"),
        (("--at", "nan"), "--at nan is not a number that a score can reach."),
        (("--rows", "1"), "Draw more than 1 row: each of 2 strata needs one."),
        (("--score-column", "edu"), "The run has no score column 'edu'. There are: score."),
        (("--more", sheet, "--within", "topic"), "Leave --within and --columns out."),
        (("--more", empty), "empty.parquet has no rows. Draw the first ones without --more."),
        (("--more", lacking), f"These rows are not of the strata around {THRESHOLD}. Name"),
    ):
        source = () if "--input" in arguments else ("--input", run.source)
        assert message in run.refused("sample", "--output", new, *source, *arguments)
        assert not new.exists()


def test_a_full_disk_leaves_no_half_of_a_sheet(run: LabelledRun) -> None:
    """A limit on the size of files stands for the disk."""
    sheet = run.files / "labels.csv"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        said = run.refused("sample", "--input", run.source, "--output", sheet, "--rows", 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert said.startswith(f"producer: {sheet} cannot be written: ")
    assert not sheet.exists()
