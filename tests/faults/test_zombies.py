"""A worker that comes back after its lease expired, or whose clock is wrong, does no harm. Leftovers of killed workers go."""

import os
import signal
import time
from pathlib import Path

import pytest

from shardsift.fleet.process.children import Child
from support.disturbed_runs import ALL_ROWS, SHARD_ROWS, DisturbedRuns, child_of
from support.injected_faults import COMPLETE, STAGE, STORE_RECEIPT
from support.waiting import wait_until


def thaw(worker: Child) -> None:
    child = child_of(worker)
    os.kill(child.pid, signal.SIGCONT)
    os.kill(worker.pid, signal.SIGCONT)


def frozen_shard(runs: DisturbedRuns, run_id: str) -> str:
    """The shard whose storing is frozen. The worker may have begun the next one."""
    return min(shard.name for shard in runs.fleet.ledger.running_shards(run_id))


@pytest.mark.faults
@pytest.mark.parametrize(("place", "moment"), [(STAGE, "after"), (STORE_RECEIPT, "after"), (COMPLETE, "before")])
def test_a_worker_that_comes_back_after_another_did_its_shard_changes_nothing_and_continues(
    place: str, moment: str, runs: DisturbedRuns
) -> None:
    run_id = runs.enqueue()
    sane = runs.faults.environment
    runs.faults.at(place, moment, "freeze worker")

    with runs.finalizer(), runs.worker("w1") as zombie:
        wait_until(runs.faults.fired, description="the worker is frozen")
        shard = frozen_shard(runs, run_id)
        with runs.worker("w2", **sane):
            wait_until(
                lambda: shard in {receipt.shard for receipt in runs.fleet.ledger.receipts(run_id)},
                description="another worker does its shard",
            )
            (receipt,) = (one for one in runs.fleet.ledger.receipts(run_id) if one.shard == shard)
        thaw(zombie)
        wait_until(
            lambda: f"Shard {shard} of {run_id} was finished by another" in runs.fleet.log("w1").read_text(),
            description="it learns that it comes too late",
        )
        runs.wait_until_published(run_id)

    made_by = {str(line["shard"]): str(line["worker"]) for line in runs.manifest()}
    assert made_by[shard] == receipt.provenance.worker
    assert runs.faults.rows_scored() <= ALL_ROWS + SHARD_ROWS
    assert runs.staged_files(run_id) == []
    runs.check_nothing_lost_nothing_twice(run_id)


@pytest.mark.faults
@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_worker_whose_clock_is_wrong_by_ten_minutes_disturbs_no_other(minutes: int, runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(seconds_a_batch=0.15)
    sane = runs.faults.environment
    runs.faults.clock_offset_seconds = 60.0 * minutes
    run_id = runs.enqueue()

    with runs.finalizer(**sane), runs.worker("w1"), runs.worker("w2", **sane):
        runs.wait_until_published(run_id)

    lines = runs.manifest()
    skews = [(str(line["worker"]), float(line["started_at"].timestamp()) - time.time()) for line in lines]
    wrong = {worker for worker, seconds in skews if abs(seconds - 60 * minutes) < 120}
    right = {worker for worker, seconds in skews if abs(seconds) < 120}
    assert len(wrong) == 1
    assert right == {worker for worker, _ in skews} - wrong
    assert {line["attempt"] for line in lines} == {1}
    runs.check_each_row_scored_once(run_id)


@pytest.mark.faults
def test_files_that_a_killed_worker_was_writing_are_removed_by_the_next(runs: DisturbedRuns, tmp_path: Path) -> None:
    runs.faults.use_stand_in(seconds_a_batch=0.3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run_id = runs.enqueue()

    with runs.worker("w1", SHARDSIFT_SCRATCH_DIR=str(scratch)) as killed:
        runs.wait_for_rows(run_id, 8)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    left = list(scratch.iterdir())
    assert any((folder / "data.parquet").exists() for folder in left)
    with runs.worker("w2", SHARDSIFT_SCRATCH_DIR=str(scratch)) as worker:
        wait_until(lambda: not any(folder.exists() for folder in left), description="the next worker removes them")
        assert worker.poll() is None
