"""The output of `producer status` while workers start, load, die and exit."""

import pytest

from producer.status import run_status
from producer.status.advice import what_next
from support.disturbed_runs import DisturbedRuns, child_of
from support.injected_faults import InjectedFaults
from support.waiting import wait_until


@pytest.mark.faults
def test_a_run_is_queued_loading_running_loading_again_and_stalled(runs: DisturbedRuns, faults: InjectedFaults) -> None:
    faults.use_stand_in(load_seconds=8, seconds_a_batch=0.4)
    run_id = runs.enqueue()

    def wait_for_state(word: str) -> None:
        ledger = runs.fleet.ledger
        wait_until(lambda: run_status(ledger, run_id).word == word, description=f"the run is {word}", seconds=60)

    wait_for_state("queued")
    with runs.finalizer(), runs.worker("w1") as worker:
        wait_for_state("loading")
        assert what_next(run_status(runs.fleet.ledger, run_id))[0].startswith("Loading the model (1 worker, ")
        wait_for_state("running")
        runs.wait_for_rows(run_id, 8)
        child_of(worker).kill()
        wait_until(lambda: not runs.fleet.ledger.counts(run_id).running, description="its shard is given back")
        wait_for_state("loading")
        assert not any("No worker" in line for line in what_next(run_status(runs.fleet.ledger, run_id)))
    wait_for_state("stalled")

    assert runs.fleet.producer("status", run_id).returncode == 3
