"""A worker stores one shard while it scores the next. Whatever ends it, both continue."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from shardsift.fleet.presence.announcements import ANNOUNCE_SECONDS, list_workers
from shardsift.fleet.process.children import Child
from support.disturbed_runs import SHARD_ROWS, SHARDS, WINDOW_ROWS, DisturbedRuns, child_of
from support.injected_faults import LAUNCH, STAGE, InjectedFaults
from support.leftovers import is_alive
from support.waiting import wait_until

WINDOWS = SHARD_ROWS // WINDOW_ROWS
STALL_SECONDS = 1


@contextmanager
def worker_with_two_shards(runs: DisturbedRuns, run_id: str, **settings: str) -> Iterator[tuple[Child, psutil.Process]]:
    """A worker whose upload hangs while it scores the next shard, and its process. No lease ends in time."""
    with runs.finalizer(), runs.worker(**settings) as worker:
        wait_until(lambda: runs.fleet.ledger.counts(run_id).running == 2, description="the worker has two shards")
        yield worker, child_of(worker)


@pytest.fixture
def slow(runs: DisturbedRuns, faults: InjectedFaults) -> DisturbedRuns:
    faults.use_stand_in(rows_a_batch=2, seconds_a_batch=0.2)
    faults.at(STAGE, "before", "hang")
    runs.lease_seconds = 300
    return runs


@pytest.mark.faults
def test_a_killed_process_gives_both_shards_back_at_once(slow: DisturbedRuns) -> None:
    run_id = slow.enqueue()

    with worker_with_two_shards(slow, run_id) as (_, process):
        process.kill()
        slow.wait_until_published(run_id)

    slow.check_nothing_lost_nothing_twice(run_id)
    assert slow.fleet.log("w1").read_text().count("The process that worked on it died") == 2
    assert slow.attempts() == {1, 2}


@pytest.mark.faults
def test_a_process_that_is_killed_between_two_tasks_gives_its_shard_back_at_once(runs: DisturbedRuns) -> None:
    runs.faults.at(STAGE, "before", "hang", passes=2 * (SHARDS - 1))
    runs.lease_seconds = 300
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        wait_until(runs.faults.fired, description="the last upload hangs")
        wait_until(
            lambda: [one.activity for one in list_workers(runs.fleet.ledger.redis)] == ["busy"],
            description="the worker is not taken for idle, although it has no task",
            seconds=2 * ANNOUNCE_SECONDS,
        )
        child_of(worker).kill()
        runs.wait_until_published(run_id)

    runs.check_nothing_lost_nothing_twice(run_id)
    assert runs.attempts() == {1, 2}


@pytest.mark.faults
def test_a_worker_told_to_stop_gives_both_shards_back(slow: DisturbedRuns) -> None:
    run_id = slow.enqueue()

    with worker_with_two_shards(slow, run_id, SHARDSIFT_STOP_SECONDS="4") as (worker, process):
        worker.terminate()
        began = time.monotonic()
        wait_until(lambda: not is_alive(process), description="the process has ended")
        seconds = time.monotonic() - began
        wait_until(lambda: not slow.fleet.ledger.counts(run_id).running, description="both are given back")
    slow.serve_until_published(run_id)

    assert seconds < 10
    slow.check_nothing_lost_nothing_twice(run_id)
    assert slow.attempts() == {1}


@pytest.mark.faults
def test_an_upload_that_hangs_ends_the_process_although_the_next_shard_advances(slow: DisturbedRuns) -> None:
    run_id = slow.enqueue()

    with worker_with_two_shards(slow, run_id, SHARDSIFT_STALL_SECONDS=str(STALL_SECONDS)) as (_, process):
        rows = slow.faults.rows_scored()
        wait_until(lambda: not is_alive(process), description="the process has ended")
        advanced = slow.faults.rows_scored() - rows
        slow.wait_until_published(run_id)

    assert advanced > 2
    slow.check_nothing_lost_nothing_twice(run_id)
    assert slow.attempts() == {1, 2}


@pytest.mark.faults
def test_a_fault_of_the_device_does_not_count_against_the_shard_that_is_stored(slow: DisturbedRuns) -> None:
    slow.faults.at(LAUNCH, "before", "device fault", passes=WINDOWS + 1)
    run_id = slow.enqueue()

    with worker_with_two_shards(slow, run_id, SHARDSIFT_STOP_SECONDS="4") as (_, process):
        wait_until(lambda: not is_alive(process), description="the process is replaced")
        slow.wait_until_published(run_id)

    slow.check_nothing_lost_nothing_twice(run_id)
    attempts = [line["attempt"] for line in slow.manifest()]
    assert attempts == [1, 2, 1, 1, 1, 1]
