"""A worker that is told to stop exits within ten seconds and loses at most a batch. Its attempt does not count."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from shardsift.fleet.process.children import Child
from shardsift.fleet.process.settings import Settings
from shardsift.worker.service.parent import _CHILD_LATE_SECONDS, _PARENT_LATE_SECONDS
from support.disturbed_runs import ALL_ROWS, DisturbedRuns, child_of
from support.injected_faults import LAUNCH, STAGE
from support.leftovers import is_alive
from support.metadata_services import Service, serving
from support.waiting import wait_until

ROWS_A_BATCH = 4
SECONDS = 10
LESS_TIME = {"SHARDSIFT_STOP_SECONDS": "4"}  # of workers that use all of it, so that a busy machine has time too


def terminate(worker: Child) -> None:
    worker.send_signal(signal.SIGTERM)


def terminate_group(worker: Child) -> None:
    os.killpg(worker.pid, signal.SIGTERM)


def interrupt_group(worker: Child) -> None:
    """Send the signals of Ctrl-C in a shell."""
    os.killpg(worker.pid, signal.SIGINT)


def gone_in_time(worker: Child, end: Callable[[Child], None]) -> float:
    """The seconds until the worker and all of its children are gone."""
    children = psutil.Process(worker.pid).children(recursive=True)
    began = time.monotonic()
    end(worker)
    worker.wait(timeout=2 * SECONDS)
    wait_until(lambda: not any(is_alive(child) for child in children), description="the children are gone")
    return time.monotonic() - began


@contextmanager
def watched_worker(runs: DisturbedRuns) -> Iterator[tuple[Service, Child]]:
    """A worker that polls the metadata service of a cloud on this machine."""
    with serving("aws") as cloud:
        settings = {"SHARDSIFT_SPOT_NOTICE": "aws", "SHARDSIFT_SPOT_NOTICE_ADDRESS": cloud.address}
        with runs.worker("spot", **settings) as worker:
            yield cloud, worker


def give_notice(cloud: Service, *, seconds: float) -> None:
    """The machine stops in this many seconds."""
    cloud.give_notice(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds)))


def test_a_worker_that_does_not_stop_by_itself_is_ended_within_ten_seconds() -> None:
    stop_seconds = Settings.model_fields["stop_seconds"].default

    assert stop_seconds + _CHILD_LATE_SECONDS + _PARENT_LATE_SECONDS < SECONDS


@pytest.mark.faults
@pytest.mark.parametrize("end", [terminate_group, terminate, interrupt_group])
def test_a_worker_told_to_stop_loses_at_most_a_batch(end: Callable[[Child], None], runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(rows_a_batch=ROWS_A_BATCH, seconds_a_batch=0.2)
    run_id = runs.enqueue()

    with runs.worker() as worker:
        runs.wait_for_rows(run_id, 10)
        seconds = gone_in_time(worker, end)
    counts, unacked = runs.fleet.ledger.counts(run_id), runs.fleet.ledger.redis.hlen("unacked")
    runs.serve_until_published(run_id)

    assert seconds < SECONDS
    assert counts.running == 0
    assert unacked == 0
    assert runs.faults.rows_scored() <= ALL_ROWS + ROWS_A_BATCH
    runs.check_nothing_lost_nothing_twice(run_id)
    assert runs.attempts() == {1}


@pytest.mark.faults
def test_a_worker_whose_supervisor_is_killed_finishes_its_batch(runs: DisturbedRuns) -> None:
    """The kernel may signal the worker several times: once for each thread of the supervisor that ends after another."""
    runs.faults.use_stand_in(rows_a_batch=ROWS_A_BATCH, seconds_a_batch=0.5)
    run_id = runs.enqueue()
    log = runs.fleet.log("w1")

    with runs.worker() as worker:
        runs.wait_for_rows(run_id, 10)
        terminate(worker)
        first = time.monotonic()
        wait_until(lambda: time.monotonic() > first + 0.2, description="the first signal has been handled")
        terminate(worker)
        worker.wait(timeout=2 * SECONDS)

    assert "in the middle of a batch" not in log.read_text()
    assert runs.fleet.ledger.counts(run_id).running == 0


@pytest.mark.faults
def test_after_a_spot_notice_a_worker_gives_its_shard_back_takes_no_other_and_stays_up(runs: DisturbedRuns) -> None:
    """If the worker exited, its supervisor would restart it, and it would take a shard each time."""
    runs.faults.use_stand_in(rows_a_batch=ROWS_A_BATCH, seconds_a_batch=0.2)
    run_id = runs.enqueue()

    with watched_worker(runs) as (cloud, worker):
        runs.wait_for_rows(run_id, 10)
        child = child_of(worker)
        give_notice(cloud, seconds=120)
        wait_until(lambda: not is_alive(child), description="the model is unloaded", seconds=SECONDS)
        counts = runs.fleet.ledger.counts(run_id)
        with runs.served():
            runs.wait_until_published(run_id)
        assert worker.poll() is None
        seconds = gone_in_time(worker, terminate)

    assert counts.running == 0
    assert seconds < 2
    assert worker.returncode == 0
    assert "takes no more shards" in runs.fleet.log("spot").read_text()
    assert runs.faults.rows_scored() <= ALL_ROWS + ROWS_A_BATCH
    runs.check_nothing_lost_nothing_twice(run_id)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("place", "fault"),
    [(LAUNCH, "hang"), (STAGE, "hang"), (LAUNCH, "hang locked")],
    ids=["in a batch", "in an upload", "deaf to signals"],
)
def test_a_hung_worker_is_ended_in_time_and_its_shard_given_back(place: str, fault: str, runs: DisturbedRuns) -> None:
    runs.faults.at(place, "before", fault)
    run_id = runs.enqueue()

    with runs.worker(**LESS_TIME) as worker:
        wait_until(runs.faults.fired, description="the worker hangs")
        seconds = gone_in_time(worker, terminate)
    counts = runs.fleet.ledger.counts(run_id)
    runs.serve_until_published(run_id)

    assert seconds < SECONDS
    runs.check_nothing_lost_nothing_twice(run_id)
    if fault == "hang":  # a process that hears no signal is killed, and its shard's lease runs out
        assert counts.running == 0
        assert runs.attempts() == {1}


@pytest.mark.faults
def test_a_notice_that_leaves_little_time_ends_the_worker_before_the_machine_goes(runs: DisturbedRuns) -> None:
    runs.faults.at(LAUNCH, "before", "hang")
    run_id = runs.enqueue()

    with watched_worker(runs) as (cloud, worker):
        wait_until(runs.faults.fired, description="the worker hangs")
        child = child_of(worker)
        give_notice(cloud, seconds=6)
        wait_until(lambda: not is_alive(child), description="its process is ended", seconds=7)

    assert runs.fleet.ledger.counts(run_id).queued == 6


@pytest.mark.faults
@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine does not allow PID namespaces",
)
def test_a_container_that_is_stopped_gives_its_shard_back(runs: DisturbedRuns, tmp_path: Path) -> None:
    """Like `docker stop` with a container without an init: SIGTERM to process 1, which is the worker."""
    runs.faults.use_stand_in(rows_a_batch=ROWS_A_BATCH, seconds_a_batch=0.2)
    run_id = runs.enqueue()

    with runs.worker_in_a_container() as container:
        runs.wait_for_rows(run_id, 10)
        (process_1,) = psutil.Process(container.pid).children()
        began = time.monotonic()
        process_1.send_signal(signal.SIGTERM)
        container.wait(timeout=2 * SECONDS)
        seconds = time.monotonic() - began
    counts = runs.fleet.ledger.counts(run_id)
    runs.serve_until_published(run_id)

    assert seconds < SECONDS
    assert counts.running == 0
    assert runs.faults.rows_scored() <= ALL_ROWS + ROWS_A_BATCH
    runs.check_nothing_lost_nothing_twice(run_id)
