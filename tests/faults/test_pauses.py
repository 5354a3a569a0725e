"""Workers, Redis and the finalizer may die while a run is paused: it stays paused, and loses and repeats nothing."""

import pytest

from shardsift.producer.status import run_status
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.redis_servers import RedisServer, moved
from support.waiting import wait_until


@pytest.fixture
def fleet(fleet: Fleet, server: RedisServer) -> Fleet:
    return moved(fleet, server.url)


@pytest.fixture
def faults(faults: InjectedFaults) -> InjectedFaults:
    """Scoring is slow, so that a pause always comes in the middle of a shard."""
    faults.use_stand_in(seconds_a_batch=0.4)
    return faults


def wait_until_given_back(runs: DisturbedRuns, run_id: str) -> None:
    ledger = runs.fleet.ledger
    wait_until(lambda: not ledger.counts(run_id).running, description="no shard is held", seconds=30)


@pytest.mark.faults
def test_a_worker_that_is_killed_before_it_gives_its_shard_back_leaves_it_to_the_next(
    runs: DisturbedRuns, undisturbed: dict[str, str]
) -> None:
    run_id = runs.enqueue()

    with runs.finalizer():
        with runs.worker("w1") as worker:
            runs.wait_for_rows(run_id, 12)
            runs.fleet.ledger.pause(run_id)
            worker.kill()
        wait_until_given_back(runs, run_id)
        status = run_status(runs.fleet.ledger, run_id)
        runs.fleet.ledger.resume(run_id)
        with runs.worker("w2"):
            runs.wait_until_published(run_id)

    assert status.word == "paused"
    runs.check_nothing_lost_nothing_twice(run_id, undisturbed)


@pytest.mark.faults
def test_a_run_is_still_paused_after_redis_and_the_finalizer_were_killed(
    runs: DisturbedRuns, server: RedisServer, undisturbed: dict[str, str]
) -> None:
    run_id = runs.enqueue()

    with runs.worker():
        with runs.finalizer() as finalizer:
            runs.wait_for_rows(run_id, 12)
            runs.fleet.ledger.pause(run_id)
            server.kill()
            finalizer.kill()
        server.start()
        with runs.finalizer():
            wait_until_given_back(runs, run_id)
            runs.wait_for_sweeps(run_id, 3)
            status = run_status(runs.fleet.ledger, run_id)
            runs.fleet.ledger.resume(run_id)
            runs.wait_until_published(run_id)

    assert (status.word, status.counts.running) == ("paused", 0)
    runs.check_each_row_scored_once(run_id, undisturbed)
