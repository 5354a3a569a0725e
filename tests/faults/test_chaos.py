"""A short storm, and regression tests for defects that long storms have found. `make faults` runs a long storm."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos.campaign import CampaignPlan, campaign
from chaos.faults import KILLS, OF_MACHINES, Kind
from support.disturbed_runs import DisturbedRuns, child_of
from support.redis_servers import RedisServer, moved
from support.waiting import wait_until

SEED, MOST_SECONDS = 7, 120
# A machine and a `producer run` take half a minute more. The long storm has them.
EVERYDAY_KILLS = (Kind.CHILD, Kind.GROUP, Kind.FINALIZER, Kind.REDIS)
CONNECTIONS = (Kind.CUT, Kind.HALF_OPEN, Kind.DELAY, Kind.FREEZE, Kind.FREEZE_REDIS)
REPAIRS = (Kind.OUTPUT, Kind.POWER)
OTHERS = (Kind.PRODUCER, Kind.NOTICE_PARENT, Kind.NOTICE_GROUP, Kind.INPUT)


def plan_of(*kinds: Kind, shards: int = 6, poison_runs: int = 0, **options: Any) -> CampaignPlan:
    return CampaignPlan(seed=SEED, kinds=kinds, shards=shards, poison_runs=poison_runs, **options)


STORMS = {
    "short": (
        plan_of(*EVERYDAY_KILLS, Kind.STAGED, seconds=MOST_SECONDS, workers=2, min_faults=1, shards=4),
        EVERYDAY_KILLS,
        1,
    ),
    "long": (plan_of(*KILLS, Kind.STAGED, seconds=2 * MOST_SECONDS, workers=2, min_faults=3, poison_runs=1), KILLS, 3),
    "of connections": (plan_of(*CONNECTIONS, seconds=60, workers=2), CONNECTIONS, 1),
    # A deck of faults holds each kill of a machine twice, so the third of each means that a whole deck was dealt.
    "a machine alone": (plan_of(*OF_MACHINES, seconds=300, workers=0, min_faults=3), OF_MACHINES, 1),
    "repairs that a power loss takes back": (plan_of(*REPAIRS, seconds=100), REPAIRS, 3),
    "producers, notices and inputs": (plan_of(*OTHERS, seconds=MOST_SECONDS, workers=2), OTHERS, 1),
}


@pytest.mark.timeout(900)  # the storm itself reports a stuck run, with the reason
@pytest.mark.parametrize(
    "name", ["short", *(pytest.param(name, marks=pytest.mark.faults) for name in STORMS if name != "short")]
)
def test_runs_in_a_storm_of_faults_are_published_whole(name: str, tmp_path: Path) -> None:
    plan, wanted, times = STORMS[name]

    outcome, *poison = campaign(plan, tmp_path / "chaos", say=print)

    kinds = Counter(fault.kind for fault in outcome.faults)
    assert [outcome.problems, *(one.problems for one in poison)] == [[]] * (1 + plan.poison_runs)
    assert any(run.published_at for run in outcome.runs)
    assert all(kinds[kind] >= times for kind in wanted), kinds


@pytest.mark.faults
def test_a_worker_whose_redis_was_away_when_it_became_ready_reports_the_crash_of_its_child(runs: DisturbedRuns) -> None:
    runs.faults.at("shardsift.worker.service.parent:Parent.__init__", "before", "fail next ping")
    runs.lease_seconds = 300
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        runs.wait_for_rows(run_id)
        child_of(worker).kill()
        runs.wait_until_published(run_id)

    assert runs.faults.fired() == 1
    runs.check_nothing_lost_nothing_twice(run_id)


@pytest.mark.faults
def test_a_claim_whose_answers_are_lost_is_one_claim_and_no_crash(runs: DisturbedRuns) -> None:
    runs.faults.at("shardsift.fleet.ledger.ledger:Ledger.claim", "after", "lose answer", times=3)
    runs.lease_seconds = 30
    run_id = runs.enqueue()

    runs.serve_until_published(run_id)

    assert runs.faults.fired() == 3
    runs.check_nothing_lost_nothing_twice(run_id)
    assert runs.attempts() == {1}


@pytest.mark.faults
def test_a_child_that_starts_while_redis_is_away_waits_for_it(runs: DisturbedRuns, server: RedisServer) -> None:
    runs.faults.use_stand_in(load_seconds=3, seconds_a_batch=0.1)
    runs = replace(runs, fleet=moved(runs.fleet, server.url))
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        runs.wait_for_rows(run_id)
        killed = child_of(worker)
        killed.kill()
        wait_until(lambda: not psutil.pid_exists(killed.pid), description="its parent has noticed")
        child_of(worker)  # the next one
        server.kill()
        wait_until(lambda: "No Redis answers at" in runs.fleet.log("w1").read_text(), description="it waits")
        server.start()
        runs.wait_until_published(run_id)
        assert worker.poll() is None

    runs.check_nothing_lost_nothing_twice(run_id)
