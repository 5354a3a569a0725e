"""A fault that kills a worker's process affects only that process: its shard continues. A shard that kills all is failed."""

import json
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.disturbed_runs import ALL_ROWS, WINDOW_ROWS, DisturbedRuns, child_of
from support.injected_faults import LAUNCH
from support.waiting import wait_until


def poisoned(shards: Path, folder: Path, action: str) -> Path:
    """The same shards, but one text of the third does what it says to the process that scores it."""
    folder.mkdir()
    for number, file in enumerate(sorted(shards.glob("*.parquet"))):
        rows = pq.read_table(file)
        if number == 2:
            texts = rows["text"].to_pylist()
            texts[20] = f"POISON:{action}|"
            text = rows.schema.field("text")
            rows = rows.set_column(rows.schema.get_field_index("text"), text, pa.array(texts, text.type))
        pq.write_table(rows, folder / file.name)
    return folder


@pytest.mark.faults
@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("segfault", "signal 11 (SIGSEGV)"),
        ("kill", "signal 9 (SIGKILL)"),
        ("exit", "exitcode 3"),
        ("sys.exit", "SystemExit: 3"),
        ("device fault", "device-side assert triggered, by order"),
        ("runtime error", "an unexpected fault, by order"),
        ("hang", "exitcode 1"),
        ("hang locked", "exitcode 1"),
    ],
)
def test_a_shard_that_kills_three_processes_is_failed_with_the_reason_and_the_others_are_done(
    action: str, said: str, runs: DisturbedRuns, tmp_path: Path
) -> None:
    runs.shards = poisoned(runs.shards, tmp_path / "in", action)
    runs.lease_seconds = 30  # so that it is not the lease that frees it
    ledger = runs.fleet.ledger
    stall = {"SHARDSIFT_STALL_SECONDS": "2"} if action.startswith("hang") else {}
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker(**stall) as worker:
        wait_until(lambda: ledger.counts(run_id).failed, description="the shard is failed", seconds=90)
        wait_until(lambda: not ledger.counts(run_id).open, description="the others are done")
        assert worker.poll() is None

    (failure,) = ledger.failures(run_id)
    assert failure.shard == "000_00002"
    assert failure.attempts == 3
    assert said in failure.error
    assert failure.worker.startswith("w1@")
    assert ledger.counts(run_id).done == 5
    if action in ("segfault", "hang", "hang locked"):
        assert "stand_in.py" in failure.traceback  # where it died
    status = json.loads(runs.fleet.producer("status", run_id, "--json").stdout)
    assert said in status["failures"][0]["error"]


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_process_costs_at_most_a_window_and_five_seconds(number: signal.Signals, runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(rows_a_batch=4, seconds_a_batch=0.1)
    runs.lease_seconds = 30  # so that it is not the lease that frees it
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        runs.wait_for_rows(run_id, 18)
        victim = child_of(worker)
        victim.send_signal(number)
        died = time.monotonic()
        before = runs.faults.rows_scored()
        wait_until(lambda: runs.faults.rows_scored() > before + 4, description="another process goes on")
        recovery = time.monotonic() - died
        runs.wait_until_published(run_id)

    assert recovery < 5 + process_start_seconds(runs)
    assert runs.faults.rows_scored() <= ALL_ROWS + WINDOW_ROWS
    runs.check_nothing_lost_nothing_twice(run_id)
    assert max(runs.attempts()) == 2


def process_start_seconds(runs: DisturbedRuns) -> float:
    """The seconds that a worker's process needs to load, on this machine."""
    began = time.monotonic()
    with runs.worker("another") as worker:
        child_of(worker)
        wait_until(lambda: "is loaded" in runs.fleet.log("another").read_text(), description="a model is loaded")
    return time.monotonic() - began


@pytest.mark.faults
def test_a_lack_of_memory_is_retried_later_and_ends_no_process(runs: DisturbedRuns) -> None:
    runs.faults.at(LAUNCH, "before", "memory error")
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        first = child_of(worker)
        runs.wait_until_published(run_id)
        assert child_of(worker).pid == first.pid

    assert "will be retried: out of memory" in runs.fleet.log("w1").read_text()
    runs.check_nothing_lost_nothing_twice(run_id)
