"""With `--rows-per-task`, a long file is several tasks. Their rows and scores are those of the whole file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from celery import Celery

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.estimate import plan_report
from shardsift.producer.planning.inputs import count_rows
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.retry import retry_run
from shardsift.producer.publishing.publish import finalize_run
from shardsift.producer.scores.scored_run import rows_of_run_near, scored_run
from shardsift.producer.verify.verify import verify
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.enqueued_runs import Command
from support.ledger_states import claimed
from support.outputs import data_digests, published_rows
from support.small_run import Runs, score

ROWS, GROUP_ROWS = 50, 8
PARTS = ["long.part-00000", "long.part-00001", "long.part-00002"]  # of 24, 24 and 2 rows
NOT_UTF8 = 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of two row groups that fit into a task, and a longer one, of which a row is bad."""
    write_shards(tmp_path / "demo", shards=2, rows=ROWS, seed=4)
    first, second = (pq.read_table(file) for file in sorted((tmp_path / "demo").glob("*.parquet")))
    (tmp_path / "in").mkdir()
    pq.write_table(second.slice(0, 10), tmp_path / "in/short.parquet", row_group_size=5)
    write(tmp_path / "in/long.parquet", first)
    return tmp_path / "in"


def write(path: Path, rows: pa.Table, *, group_rows: int = GROUP_ROWS) -> None:
    texts = [text.encode() for text in rows["text"].to_pylist()]
    texts[NOT_UTF8] = b"\xff"
    column = pa.array(texts, pa.binary()).view(pa.string())
    rows = rows.set_column(rows.schema.get_field_index("text"), "text", column)
    pq.write_table(rows, path, row_group_size=group_rows)


PARTED = {"max_bad_rows": 0.1, "rows_per_task": 24}


@pytest.fixture
def options(runs: Runs, source: Path) -> RunOptions:
    return runs.options(source, "parts", min_score=0.0, **PARTED)


def rows_by_place(output: Path, kind: str = "data") -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of an output by their file and their number in it."""
    rows = published_rows(output, kind).to_pylist()
    found = {(row.pop("shard").partition(".")[0], row.pop("row")): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_plan_says_what_is_not_split(options: RunOptions, source: Path) -> None:
    assert plan_run(options).notes == ()

    assert plan_run(replace(options, rows_per_task=5)).notes == (
        "Some tasks have more rows, up to 8: --rows-per-task does not split row groups.",
    )
    (source / "lines.jsonl").write_text('{"text": "a"}\n')
    assert plan_run(replace(options, input_uris=(str(source / "lines.jsonl"),))).notes == (
        "1 file not split: --rows-per-task splits Parquet files only.",
    )


def check_found_by_place(output: Path, source: Path) -> None:
    """Check that a row is found in its file by the number that the part says."""
    near = rows_of_run_near(scored_run(str(output), None), None, near=0.0, count=60, source=(str(source),))
    texts = pq.read_table(source / "long.parquet").column("url").to_pylist()
    assert {row.url for row in near if row.shard == PARTS[2]} == {*texts[48:]}


def test_a_run_of_parts_has_the_rows_and_scores_of_one_without_and_is_sound(runs: Runs, source: Path) -> None:
    parted = runs.publish(source, "parts", min_score=0.0, **PARTED)
    whole = runs.publish(source, "whole", min_score=0.0, max_bad_rows=0.1)

    assert runs.specs[parted].run_id != replace(runs.specs[whole], output_uri=str(parted)).run_id
    assert sorted(file.stem for file in (parted / "data").iterdir()) == [*PARTS, "short"]
    for kind in ("data", "scores"):
        parts, expected = rows_by_place(parted, kind), rows_by_place(whole, kind)
        scores, expected_scores = ([row.pop("score") for row in rows.values()] for rows in (parts, expected))
        assert parts == expected
        assert scores == pytest.approx(expected_scores, abs=1e-5)
    assert verify(str(parted), source=(str(source),)).faults == ()
    check_found_by_place(parted, source)


def test_merged_parts_are_sound_and_refilter_to_the_rows_and_scores_of_a_fresh_run(runs: Runs, source: Path) -> None:
    merged = runs.publish(source, "parts", min_score=0.0, target_file_size="1MB", **PARTED)
    fresh = runs.publish(source, "fresh", where="length(text) > 300", **PARTED)

    again = runs.refilter(merged, where="length(text) > 300")

    for output in (merged, again):
        assert [path.stem for path in sorted(output.glob("*/*.parquet"))] == [PARTS[0], PARTS[0]]
        assert verify(str(output), source=(str(source),)).faults == ()
    for kind in ("data", "scores"):
        assert rows_by_place(again, kind) == rows_by_place(fresh, kind)
    check_found_by_place(merged, source)


def test_a_run_of_parts_is_refiltered_and_a_part_that_was_left_out_fails_again(runs: Runs, source: Path) -> None:
    where, options = "length(text) > 300", {"limit_rows": 49, **PARTED}
    earlier = runs.publish(source, "parts", min_score=0.0, failing=[PARTS[1]], **options)
    fresh = runs.publish(source, "fresh", where=where, failing=[PARTS[1]], **options)

    plan = runs.refilter_plan(earlier, where=where)
    again = runs.refilter(earlier, where=where, failing=[PARTS[1]])

    assert [(shard.name, shard.row_limit) for shard in plan.shards] == [*zip(PARTS, (24, 49, 1), strict=True)]
    assert data_digests(again) == data_digests(fresh)
    assert [str(fault) for fault in verify(str(again), source=(str(source),)).faults] == [
        f"data/{PARTS[1]}.parquet: is missing: its shard failed, and the run was published without it"
    ]
    with pytest.raises(ShardError, match=f"was published without the shard {PARTS[1]}"):
        runs.refilter(earlier, "other", where=where)


@pytest.mark.parametrize(
    ("limit_rows", "ranges"),
    [
        (None, [(PARTS[0], 0, 24), (PARTS[1], 24, 24), (PARTS[2], 48, None), ("short", 0, None)]),
        (53, [(PARTS[0], 0, 24), (PARTS[1], 24, 24), (PARTS[2], 48, None), ("short", 0, 3)]),
        (30, [(PARTS[0], 0, 24), (PARTS[1], 24, 6)]),
        (24, [("long", 0, 24)]),
    ],
)
def test_a_limit_of_rows_is_one_of_all_parts(
    options: RunOptions, limit_rows: int | None, ranges: list[tuple[str, int, int | None]], source: Path
) -> None:
    plan = plan_run(replace(options, limit_rows=limit_rows))

    report = plan_report(plan)
    assert [(shard.name, shard.first_row, shard.row_limit) for shard in plan.shards] == ranges
    assert count_rows(plan.shards) == report["rows"] == (limit_rows or 60)
    if limit_rows is None:
        assert report["bytes"] == pytest.approx(sum(file.stat().st_size for file in source.iterdir()), abs=3)


def test_what_cannot_be_split_is_refused_and_files_of_lines_stay_whole(options: RunOptions, source: Path) -> None:
    (source.parent / "lines.jsonl").write_text('{"text": "one"}\n' * 40)
    lines = replace(options, input_uris=(str(source.parent / "lines.jsonl"),))
    assert [(shard.name, shard.row_limit) for shard in plan_run(lines).shards] == [("lines", None)]

    (source / "long.part-00001.parquet").write_bytes((source / "short.parquet").read_bytes())
    with pytest.raises(UsageError, match=r"Two files would become shard long\.part-00001"):
        plan_run(options)

    (source / "long.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"The input cannot be split\. .*long\.parquet"):
        plan_run(options)


def test_a_changed_file_that_is_accepted_is_scored_again_in_all_parts(
    ledger: Ledger, app: Celery, scorer: SequenceClassifier, options: RunOptions, source: Path, tmp_path: Path
) -> None:
    command = Command(options=options, ledger=ledger, app=app)
    run_id = command.do().run_id
    spec, shards = ledger.spec(run_id), {shard.name: shard for shard in ledger.shards(run_id)}
    do_all = {"ledger": ledger, "scorer": scorer, "spec": spec, "scratch": tmp_path / "scratch"}
    score(**do_all, shards=[shards[PARTS[0]], shards["short"]])
    longer = pq.read_table(sorted((tmp_path / "demo").glob("*.parquet"))[1])
    write(source / "long.parquet", pa.concat_tables([longer, longer.slice(0, 9)]), group_rows=7)
    ledger.fail(claimed(ledger, run_id, shards[PARTS[1]]), "the input changed", "")
    held = claimed(ledger, run_id, shards[PARTS[2]])

    with pytest.raises(UsageError, match=rf"scored now: {PARTS[2]}\. Wait for their end"):
        retry_run(ledger, run_id)
    ledger.release(held)
    retried = retry_run(ledger, run_id)

    assert (retried.changed, retried.queued) == (tuple(PARTS), 2)
    assert ledger.counts(run_id).done == 1
    ledger.redis.flushall()
    again = command.do()
    assert (again.run_id, again.restored) == (run_id, 1)
    score(**do_all, shards=[shard for shard in ledger.shards(run_id) if shard.name != "short"])
    finalize_run(ledger, run_id, without_failed=False)
    assert verify(spec.output_uri, source=(str(source),)).faults == ()
    assert len(rows_by_place(Path(spec.output_uri), "scores")) == ROWS + 9 + 10
