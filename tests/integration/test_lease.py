"""A lease on a real ledger is renewed during the work, notices its loss, and survives an absence of Redis."""

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fleet.errors import LeaseLost, Stopped
from fleet.ledger import Claim, Ledger, Refusal
from fleet.ledger.base import Keys
from fleet.process.settings import Settings
from support.ledger_states import claimed as claim_of
from support.records import a_shard, a_spec
from support.redis_servers import redis_server
from support.waiting import wait_until
from worker.service.lease import DeviceMeter, Lease, Watchdog

LEASE_SECONDS = 1.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with redis_server(tmp_path_factory.mktemp("r")) as server:
        yield server.socket


@contextmanager
def connected(socket: Path) -> Iterator[Ledger]:
    with redis.Redis(unix_socket_path=str(socket), decode_responses=True) as client:
        yield Ledger(client, Settings(lease_seconds=LEASE_SECONDS, max_attempts=1000))


@pytest.fixture
def ledger(socket: Path) -> Iterator[Ledger]:
    with connected(socket) as ledger:
        yield ledger


def claimed(ledger: Ledger) -> Claim:
    """A claim on the only shard of a new run."""
    spec = a_spec(input_revision=str(next(_numbers)))
    ledger.create_run(spec, [a_shard("a")], now=0)
    return claim_of(ledger, spec.run_id, a_shard("a"))


def lease_of(
    ledger: Ledger,
    claim: Claim,
    *,
    stopping: threading.Event | None = None,
    stall_seconds: float = 900,
) -> Lease:
    return Lease(
        ledger,
        claim,
        device=DeviceMeter("cpu", ()),
        stopping=stopping or threading.Event(),
        watchdog=Watchdog(stall_seconds, sys.__stderr__),
    )


def redis_seconds(ledger: Ledger) -> float:
    seconds, microseconds = ledger.redis.time()
    return float(seconds + microseconds / 1e6)


def lost(lease: Lease) -> LeaseLost | None:
    """What the next batch would raise."""
    if lease.on_batch(1):
        return None
    with pytest.raises(LeaseLost) as error:
        lease.check()
    return error.value


def test_a_lease_outlives_its_length_while_the_work_goes_on(ledger: Ledger) -> None:
    claim = claimed(ledger)
    claimed_at = redis_seconds(ledger)
    answers_to_another: set[object] = set()

    def three_leases_have_passed() -> bool:
        answers_to_another.add(ledger.claim(claim.run_id, "a", owner="another"))
        return redis_seconds(ledger) > claimed_at + 3 * LEASE_SECONDS

    with lease_of(ledger, claim) as lease:
        wait_until(three_leases_have_passed, description="three leases have passed", seconds=30)
        lease.on_batch(1)

    assert answers_to_another == {Refusal.RUNNING}


def test_a_lease_ends_with_its_block(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim):
        pass

    another = wait_until(
        lambda: isinstance(ledger.claim(claim.run_id, "a", owner="another"), Claim),
        description="another worker may claim the shard",
        seconds=10 * LEASE_SECONDS,
    )
    assert another


def test_the_rows_scored_so_far_reach_the_ledger_over_windows(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim) as lease:
        lease.on_batch(300)
        lease.on_batch(500)
        lease.on_window()
        lease.on_batch(20)

        wait_until(
            lambda: ledger.counts(claim.run_id).rows_running == 520, description="the ledger shows 520 rows", seconds=20
        )


def test_a_batch_after_another_claim_took_over_ends_the_work(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim) as lease:
        lease.on_batch(10)
        second = claim_of(ledger, claim.run_id, a_shard("a"))  # the worker's next child: the first counts as dead
        error = wait_until(lambda: lost(lease), description="the loss is noticed", seconds=20)

    assert second.token > claim.token
    assert "another attempt took it over" in str(error)


def test_a_batch_after_the_run_was_cancelled_ends_the_work(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim) as lease:
        ledger.cancel(claim.run_id)
        error = wait_until(lambda: lost(lease), description="the cancellation is noticed", seconds=20)

    assert "the run was cancelled" in str(error)


def test_a_batch_after_the_run_was_paused_ends_the_work_even_if_it_is_resumed_at_once(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim) as lease:
        ledger.pause(claim.run_id)
        wait_until(lambda: not lease.on_batch(1), description="the pause is noticed", seconds=20)
        ledger.resume(claim.run_id)
        with pytest.raises(Stopped, match="Shard a was given back: the run is paused"):
            lease.check()


def test_a_paused_shard_is_still_held_until_its_batch_ends(ledger: Ledger) -> None:
    claim = claimed(ledger)

    with lease_of(ledger, claim) as lease:
        ledger.pause(claim.run_id)
        wait_until(lambda: not lease.on_batch(1), description="the pause is noticed", seconds=20)
        ledger.redis.zadd(Keys(claim.run_id).running, {"a": 1})
        wait_until(
            lambda: ledger.redis.zscore(Keys(claim.run_id).running, "a") != 1,
            description="the lease is renewed",
            seconds=20,
        )


def test_a_batch_after_the_worker_was_told_to_stop_ends_the_work(ledger: Ledger) -> None:
    stopping = threading.Event()

    with lease_of(ledger, claimed(ledger), stopping=stopping) as lease:
        assert lease.on_batch(1)
        stopping.set()
        assert not lease.on_batch(2)
        with pytest.raises(Stopped, match="Shard a was given back: the worker is stopping"):
            lease.check()


def test_a_worker_says_for_how_long_it_has_made_no_progress(ledger: Ledger) -> None:
    claim = claimed(ledger)

    def idle_seconds() -> float:
        (running,) = ledger.running_shards(claim.run_id)
        return running.idle_seconds

    with lease_of(ledger, claim) as lease:
        wait_until(lambda: idle_seconds() > 2, description="two seconds without progress", seconds=30)
        lease.on_batch(1)
        wait_until(lambda: 0 < idle_seconds() < 2, description="progress again", seconds=30)


def test_the_work_goes_on_while_redis_is_away_and_the_lease_is_still_ours_when_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path_factory.mktemp("r")) as server, connected(server.socket) as ledger:
        claim = claimed(ledger)
        with lease_of(ledger, claim) as lease:
            lease.on_batch(10)

            server.stop()
            wait_until(lambda: "The lease of shard a could not be renewed" in caplog.text, description="a warning")
            lease.on_batch(25)

            server.start()
            wait_until(
                lambda: ledger.counts(claim.run_id).rows_running == 25,
                description="the lease is renewed, with the rows of the time between",
                seconds=20,
            )
            lease.on_batch(30)
