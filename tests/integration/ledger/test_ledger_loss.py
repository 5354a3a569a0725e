"""Redis comes back empty or with an older state, while workers continue."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fleet.errors import LeaseLost, RunUnknown
from fleet.ledger import Ledger, Refusal
from fleet.ledger.base import Keys
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from producer.local.redis import embedded_redis
from support.ledger_states import (
    A,
    B,
    C,
    age_messages,
    claimed,
    end_back_off,
    fresh,
    resent,
)
from support.records import a_receipt


class TestLossOfRedis:
    """Redis restarted empty or with an older state, while workers continued."""

    @pytest.fixture
    def lose_all(self, client: redis.Redis, ledger: Ledger, spec: RunSpec) -> Callable[[], None]:
        """Redis restarts empty, and the run is enqueued again."""

        def lose_all() -> None:
            client.flushall()
            client.script_flush()
            ledger.create_run(spec, [A, B, C], now=time.time())

        return lose_all

    def test_a_lost_run_is_reported_as_such(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)

        client.flushall()

        with pytest.raises(RunUnknown, match="producer enqueue"):
            ledger.renew(claim, rows=1)
        with pytest.raises(RunUnknown):
            ledger.complete(claim, a_receipt(run, A))
        assert client.keys() == []

    def test_no_shard_is_claimed_while_only_the_hash_of_the_run_is_lost(
        self, ledger: Ledger, client: redis.Redis, spec: RunSpec, run: str
    ) -> None:
        assert fresh(ledger, run, room=1) == [A.name]
        client.delete(Keys(run).run)

        assert ledger.claim(run, A.name, "w1") is Refusal.UNKNOWN
        assert not client.exists(Keys(run).run, Keys(run).attempts(A.name))

        age_messages(client, run)
        ledger.create_run(spec, [A, B, C], now=time.time())
        assert resent(ledger, run) == [A.name]
        assert claimed(ledger, run).attempt == 1

    def test_all_workers_continue_when_the_run_is_back(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        claims = [claimed(ledger, run, shard, owner=f"w-{shard.name}") for shard in (A, B, C)]

        lose_all()
        for claim in reversed(claims):
            ledger.renew(claim, rows=5)

        assert (ledger.counts(run).running, ledger.counts(run).rows_running) == (3, 15)
        assert ledger.claim(run, A.name, "w4") is Refusal.RUNNING
        assert [ledger.complete(claim, a_receipt(run, claim.shard)) for claim in claims] == [2, 1, 0]

    def test_the_first_worker_that_claims_a_shard_has_it(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        before = claimed(ledger, run, owner="w1")

        lose_all()
        after = claimed(ledger, run, owner="w2")

        assert after.token != before.token
        for refused in (lambda: ledger.renew(before, rows=1), lambda: ledger.complete(before, a_receipt(run, A))):
            with pytest.raises(LeaseLost):
                refused()
        ledger.renew(after, rows=1)

    def test_tokens_are_unique_though_their_numbers_start_again(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        tokens = []
        for _ in range(3):
            tokens += [claimed(ledger, run, shard).token for shard in (A, B, C)]
            lose_all()

        assert len(set(tokens)) == 9

    def test_a_worker_continues_with_an_older_state_too(
        self, ledger: Ledger, client: redis.Redis, redis_url: str, run: str
    ) -> None:
        ledger.retry_later(claimed(ledger, run, owner="w0"), "network", "")
        end_back_off(client, run)
        older = state_of(redis_url)
        claim = claimed(ledger, run, owner="w1")

        put_back(redis_url, older)
        ledger.renew(claim, rows=1)

        assert ledger.claim(run, A.name, "w0") is Refusal.RUNNING  # not the successor of its own earlier attempt
        ledger.complete(claim, a_receipt(run, A))
        assert ledger.counts(run).done == 1

    def test_a_claim_outlives_a_restart_with_the_data(self, spec: RunSpec, tmp_path: Path) -> None:
        with embedded_redis(tmp_path) as url:
            ledger = Ledger.connect(Settings(redis_url=url))
            ledger.create_run(spec, [A, B], now=1.0)
            claim = claimed(ledger, spec.run_id)
            ledger.save_scores(claim, 0, b"\xff\x00")
            ledger.redis.close()

        with embedded_redis(tmp_path) as url:
            ledger = Ledger.connect(Settings(redis_url=url))
            ledger.renew(claim, rows=1)
            saved = ledger.saved_scores(claim)
            still_open = ledger.complete(claim, a_receipt(spec.run_id, A))
            ledger.redis.close()

        assert (saved, still_open) == ({0: b"\xff\x00"}, 1)


def state_of(redis_url: str) -> dict[bytes, bytes]:
    with redis.Redis.from_url(redis_url) as raw:
        return {key: raw.dump(key) for key in raw.scan_iter()}


def put_back(redis_url: str, state: dict[bytes, bytes]) -> None:
    with redis.Redis.from_url(redis_url) as raw:
        raw.flushall()
        for key, value in state.items():
            raw.restore(key, 0, value)
