"""A worker's log has what a person needs, once."""

import re
from pathlib import Path

import pytest

from support.disturbed_runs import DisturbedRuns, child_of
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.waiting import wait_until


@pytest.mark.faults
def test_an_unexpected_error_and_a_killed_process_are_logged_once_and_celery_adds_no_noise(
    runs: DisturbedRuns, faults: InjectedFaults
) -> None:
    faults.at("worker.shard.window_scoring:WindowScoring.scores", "before", "runtime error")
    ledger = runs.fleet.ledger
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        runs.wait_for_rows(run_id)
        child_of(worker).kill()
        wait_until(lambda: not ledger.counts(run_id).open, description="all shards are done")

    log = runs.fleet.log("w1").read_text()
    assert log.count("Traceback (most recent call last)") == 1
    done = re.findall(
        rf" in, \d+ kept, 0 errored \[run_id={run_id} shard=\S+ attempt=\d rows=\d+ seconds=\d+\.\d\]", log
    )
    assert len(done) == ledger.counts(run_id).shards
    for noise in (
        "[config]",
        "[queues]",
        "calling self.run()",
        "exiting with exitcode",
        "semaphore",
        "WorkerLostError",
    ):
        assert noise not in log


@pytest.mark.faults
def test_loading_a_real_model_logs_no_lines_of_its_libraries(fleet: Fleet, tiny_model: Path) -> None:
    log = fleet.log("w1")

    with fleet.worker(tiny_model):
        wait_until(lambda: "ready" in log.read_text(), description="the worker is ready", seconds=120)
        wait_until(lambda: "is loaded on" in log.read_text(), description="the model is loaded", seconds=120)

    assert "torchao" not in log.read_text()
    assert "[queues]" not in log.read_text()
