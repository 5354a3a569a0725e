"""A worker's process may die between any two effects of scoring a shard: nothing is lost or duplicated."""

from itertools import product

import pytest

from shardsift.fleet.ledger.records import Steering
from support.disturbed_runs import DisturbedRuns
from support.injected_faults import COMPLETE, STAGE, STORE_RECEIPT

CLAIM = "shardsift.fleet.ledger.ledger:Ledger.claim"
SAVE = "shardsift.fleet.ledger.ledger:Ledger.save_scores"
SEND = "shardsift.fleet.ledger.ledger:Ledger.take_due"
POINTS = [*product((CLAIM, SAVE, STAGE, STORE_RECEIPT, COMPLETE), ("before", "after")), (SEND, "after")]


@pytest.mark.faults
@pytest.mark.parametrize("action", ["kill", "kill worker"])
@pytest.mark.parametrize(("place", "moment"), POINTS)
def test_a_worker_may_die_between_any_two_effects(place: str, moment: str, action: str, runs: DisturbedRuns) -> None:
    runs.faults.at(place, moment, action, times=2)
    run_id = runs.enqueue()
    if place == SEND:  # a worker sends messages only if shards wait for one: here for the end of another
        runs.fleet.ledger.steer(run_id, Steering(max_workers=1))

    with runs.served(workers=3):
        runs.wait_until_published(run_id)

    assert runs.faults.fired() == 2
    runs.check_nothing_lost_nothing_twice(run_id)
