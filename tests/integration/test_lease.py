"""A lease on a real ledger is renewed during the work, notices its loss, and survives an absence of Redis."""

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from shardsift.fleet.errors import LeaseLost, Stopped
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.process.settings import Settings
from support.ledger_states import claimed
from support.records import a_shard, a_spec
from support.redis_servers import redis_server
from support.small_run import leased
from support.waiting import wait_until

LEASE_SECONDS = 1.0
SETTINGS = Settings(lease_seconds=LEASE_SECONDS, max_attempts=1000)
A = a_shard("a")
_numbers = itertools.count()


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield Ledger(client, SETTINGS)


def claimed_in(ledger: Ledger) -> Claim:
    """A claim on the only shard of a new run."""
    spec = a_spec(input_revision=str(next(_numbers)))
    ledger.create_run(spec, [A], now=0)
    return claimed(ledger, spec.run_id, A)


@pytest.fixture
def claim(ledger: Ledger) -> Claim:
    return claimed_in(ledger)


def test_a_lease_ends_with_its_block(ledger: Ledger, claim: Claim) -> None:
    with leased(ledger, claim)[0]:
        pass

    another = wait_until(
        lambda: isinstance(ledger.claim(claim.run_id, "a", owner="another"), Claim),
        description="another worker may claim the shard",
        seconds=10 * LEASE_SECONDS,
    )
    assert another


def test_the_rows_scored_so_far_reach_the_ledger_over_windows(ledger: Ledger, claim: Claim) -> None:
    with leased(ledger, claim)[0] as lease:
        lease.on_batch(300)
        lease.on_batch(500)
        lease.on_window()
        lease.on_batch(20)

        wait_until(
            lambda: ledger.counts(claim.run_id).rows_running == 520, description="the ledger shows 520 rows", seconds=20
        )


def take_over(ledger: Ledger, claim: Claim) -> None:
    """As the worker's next child does: the first counts as dead."""
    assert claimed(ledger, claim.run_id, A).token > claim.token


def cancel(ledger: Ledger, claim: Claim) -> None:
    ledger.cancel(claim.run_id)


@pytest.mark.parametrize(
    ("lose", "says"), [(take_over, "another attempt took it over"), (cancel, "the run was cancelled")]
)
def test_a_batch_after_the_claim_was_lost_ends_the_work(
    lose: Callable[[Ledger, Claim], None], says: str, ledger: Ledger, claim: Claim
) -> None:
    with leased(ledger, claim)[0] as lease:
        lease.on_batch(10)
        lose(ledger, claim)
        wait_until(lambda: not lease.on_batch(20), description="the loss is noticed", seconds=20)
        with pytest.raises(LeaseLost, match=says):
            lease.check()


def test_a_paused_shard_is_held_until_its_batch_ends_even_if_resumed_at_once(ledger: Ledger, claim: Claim) -> None:
    running = Keys(claim.run_id).running

    with leased(ledger, claim)[0] as lease:
        ledger.pause(claim.run_id)
        wait_until(lambda: not lease.on_batch(1), description="the pause is noticed", seconds=20)
        ledger.redis.zadd(running, {"a": 1})
        wait_until(lambda: ledger.redis.zscore(running, "a") != 1, description="the lease is renewed", seconds=20)
        ledger.resume(claim.run_id)
        with pytest.raises(Stopped, match="Shard a was given back: the run is paused"):
            lease.check()


def test_a_worker_says_for_how_long_it_has_made_no_progress(ledger: Ledger, claim: Claim) -> None:
    def idle_seconds() -> float:
        (running,) = ledger.running_shards(claim.run_id)
        return running.idle_seconds

    with leased(ledger, claim)[0] as lease:
        wait_until(lambda: idle_seconds() > 2, description="two seconds without progress", seconds=30)
        lease.on_batch(1)
        wait_until(lambda: 0 < idle_seconds() < 2, description="progress again", seconds=30)


def test_the_work_goes_on_while_redis_is_away_and_the_lease_is_still_ours_when_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path_factory.mktemp("r")) as server:
        ledger = Ledger(server.client, SETTINGS)
        claim = claimed_in(ledger)
        with leased(ledger, claim)[0] as lease:
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
