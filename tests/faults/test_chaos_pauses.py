"""A storm pauses runs as an operator does, and notices a shard that is claimed meanwhile, and a pause that comes back."""

import time
from collections.abc import Iterator

import pytest

from chaos.kinds import Fault, Kind, Planned
from chaos.pauses import Pauses
from chaos.promises import Promise
from chaos.schedule import Schedule
from chaos.service import Service
from fleet.ledger.base import Keys
from support.fleet import Fleet
from support.processes import BIN
from support.records import a_shard, a_spec
from support.waiting import wait_until

RUN = a_spec().run_id
PLAN = Planned(kind=Kind.PAUSE, after_seconds=0, lasts_seconds=0.2)


class Operator:
    """Ticks the pauses of a run, as a storm does."""

    def __init__(self, fleet: Fleet, plans: list[Planned]) -> None:
        self._fleet = fleet
        self.pauses = Pauses("run 1", iter(plans), fleet.ledger)
        self.faults: list[Fault] = []

    def wait_until_paused(self, paused: bool) -> None:
        def is_so() -> bool:
            self.faults += self.pauses.tick(time.time(), RUN, may_begin=True, command=self._service)
            return (self._fleet.ledger.pause_reason(RUN) is not None) == paused and len(self.faults) == 1

        wait_until(is_so, description=f"the run is {'' if paused else 'not '}paused")

    def _service(self, command: str) -> Service:
        return Service(
            [str(BIN / "producer"), command, RUN], environment=self._fleet.environment, log=self._fleet.log(command)
        )


@pytest.fixture
def operator(fleet: Fleet) -> Iterator[Operator]:
    fleet.ledger.create_run(a_spec(), [a_shard("a"), a_shard("b")], now=1.0)
    operator = Operator(fleet, [PLAN])
    yield operator
    operator.pauses.stop()


def test_a_seed_pauses_and_limits_the_same_runs_and_most_runs_not_at_all() -> None:
    def planned(seed: int) -> list[tuple[list[Planned], int | None]]:
        schedule = Schedule(seed, lease_seconds=2)
        return [(list(schedule.of_pauses(run)), schedule.max_workers_of(run)) for run in range(40)]

    assert planned(1) == planned(1) != planned(2)
    assert 10 <= sum(bool(pauses) for pauses, _ in planned(1)) <= 30
    assert 5 <= sum(limit is not None for _, limit in planned(1)) <= 25
    without = Schedule(1, lease_seconds=2, only=(Kind.CHILD,))
    assert not [run for run in range(40) if list(without.of_pauses(run)) or without.max_workers_of(run)]


def test_an_undisturbed_paused_run_keeps_the_promise(operator: Operator) -> None:
    operator.wait_until_paused(True)
    operator.wait_until_paused(False)

    assert [fault.kind for fault in operator.faults] == [Kind.PAUSE]
    assert operator.pauses.was_paused
    assert operator.pauses.problems == []


@pytest.mark.parametrize("power_was_lost", [False, True])
def test_a_claim_during_a_pause_breaks_it_unless_a_power_loss_took_the_pause_back(
    operator: Operator, fleet: Fleet, power_was_lost: bool
) -> None:
    operator.wait_until_paused(True)
    fleet.ledger.redis.hincrby(Keys(RUN).run, "fence", 1)  # what a claim does
    if power_was_lost:
        operator.pauses.see_power_loss()
    operator.wait_until_paused(False)

    assert [one.promise for one in operator.pauses.problems] == ([] if power_was_lost else [Promise.NOT_HELD])


def test_a_pause_that_comes_back_is_ended_again(operator: Operator, fleet: Fleet) -> None:
    operator.wait_until_paused(True)
    operator.wait_until_paused(False)
    fleet.ledger.pause(RUN)  # as a ledger that was restored from an older copy has it

    operator.wait_until_paused(False)
