"""Which shards need a message, and which leases have expired."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fleet.ledger import Ledger
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from support.ledger_states import (
    LEASE_SECONDS,
    OUTAGE_SECONDS,
    A,
    again,
    claimed,
    end_lease,
    move_clock,
    no_sweep_for,
)
from support.records import a_receipt, a_shard


class TestDue:
    def test_sweeps_at_once_share_the_shards(self, redis_url: str, spec: RunSpec) -> None:
        ledger = Ledger.connect(Settings(redis_url=redis_url))
        shards = [a_shard(f"{number:04}") for number in range(2_500)]
        ledger.create_run(spec, shards, now=1.0)
        for shard in shards[:500]:
            ledger.release(claimed(ledger, spec.run_id, shard))

        def sweep(_: int) -> list[str]:
            due = ledger.take_due(spec.run_id, room=1_000)
            return due.again + due.fresh

        with ThreadPoolExecutor(6) as threads:
            taken = [name for names in threads.map(sweep, range(6)) for name in names]

        assert len(taken) == len(set(taken)) == 2_500


class TestOutages:
    """No finalizer has swept for longer than three sweeps: Redis was away, and no worker could renew its lease."""

    def test_the_workers_of_a_large_fleet_are_all_spared(
        self, ledger: Ledger, client: redis.Redis, spec: RunSpec
    ) -> None:
        shards = [a_shard(f"{number:04}") for number in range(1_100)]
        ledger.create_run(spec, shards, now=1.0)
        for shard in shards:
            claimed(ledger, spec.run_id, shard, owner=f"w{shard.name}")
            end_lease(client, spec.run_id, shard, seconds_ago=10)
        no_sweep_for(client, spec.run_id, OUTAGE_SECONDS + 5)

        assert [again(ledger, spec.run_id), again(ledger, spec.run_id)] == [[], []]
        assert ledger.counts(spec.run_id).running == 1_100


class TestClockOfRedis:
    """It jumps by an hour, as when a time service corrects it."""

    def test_a_dead_workers_shard_is_sent_after_a_lease_though_the_clock_went_back(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        claimed(ledger, run)
        again(ledger, run)

        move_clock(client, run, seconds=-3600)
        again(ledger, run)

        (held,) = ledger.running_shards(run)
        assert held.lease_seconds_left == pytest.approx(LEASE_SECONDS, abs=2)
        move_clock(client, run, seconds=LEASE_SECONDS + 1)
        no_sweep_for(client, run, 0)
        assert again(ledger, run) == [A.name]

    @pytest.mark.parametrize("how", ["renew", "complete", "release"])
    def test_an_attempt_is_charged_at_most_a_lease_at_a_time_though_the_clock_went_forward(
        self, ledger: Ledger, client: redis.Redis, run: str, how: str
    ) -> None:
        claim = claimed(ledger, run)
        again(ledger, run)

        move_clock(client, run, seconds=3600)
        again(ledger, run)
        if how == "renew":
            ledger.renew(claim, rows=1)
        elif how == "complete":
            ledger.complete(claim, a_receipt(run, A))
        else:
            ledger.release(claim)

        assert 0 < ledger.counts(run).worker_seconds <= LEASE_SECONDS
