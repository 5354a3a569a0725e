"""What one worker does with a shard: the claim, the scores of finished windows, and errors that may go away.

The model, which `test_ledger_model.py` compares, has what each call does to the state.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardsift.fleet.ledger import Claim, Ledger, Refusal
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.run.spec import RunSpec
from support.ledger_machine import CLOCK
from support.ledger_states import A, B, C, claimed
from support.records import a_shard
from support.watched_run import clocked_ledger


def test_of_many_threads_one_claims_each_shard(ledger: Ledger, spec: RunSpec) -> None:
    shards = [a_shard(f"{number}") for number in range(40)]
    ledger.create_run(spec, shards, now=1.0)

    def claim_all(owner: str) -> list[Claim]:
        answers = [ledger.claim(spec.run_id, shard.name, owner) for shard in shards]
        return [answer for answer in answers if isinstance(answer, Claim)]

    with ThreadPoolExecutor(8) as threads:
        claims = [claim for claims in threads.map(claim_all, "abcdefgh") for claim in claims]

    assert sorted(claim.shard.name for claim in claims) == sorted(shard.name for shard in shards)
    assert len({claim.token for claim in claims}) == len(shards)


def test_tokens_are_unique_though_redis_lost_all_of_them(ledger: Ledger, spec: RunSpec) -> None:
    tokens = set()
    for _ in range(3):
        ledger.redis.flushall()
        ledger.create_run(spec, [A], now=1.0)
        tokens.add(claimed(ledger, spec.run_id).token)

    assert len(tokens) == 3


def test_scores_come_back_byte_for_byte(ledger: Ledger, run: str) -> None:
    claim, scores = claimed(ledger, run), bytes(range(256)) * 3 + b"\xff\xfe\r\n\x00"

    assert [ledger.save_scores(claim, 0, scores), ledger.save_scores(claim, 8192, b"")] == [True, True]

    assert ledger.saved_scores(claim) == {0: scores, 8192: b""}


@pytest.fixture
def clocked(redis_url: str) -> Iterator[Ledger]:
    with clocked_ledger(redis_url) as ledger:
        yield ledger


def pass_ms(ledger: Ledger, ms: float) -> None:
    ledger.redis.incrby(CLOCK, int(ms))


def test_waits_are_four_times_as_long_and_the_eighth_error_fails(clocked: Ledger, spec: RunSpec) -> None:
    ledger, run, waits = clocked, spec.run_id, []
    ledger.create_run(spec, [A, B, C], now=1.0)
    for number in range(1, 8):
        assert ledger.retry_later(claimed(ledger, run), f"network {number}", "") == 3
        wait_ms = ledger.redis.zscore(Keys(run).waiting, A.name) - int(ledger.redis.get(CLOCK))
        waits.append(wait_ms / 1000)
        pass_ms(ledger, wait_ms)
    open_shards = ledger.retry_later(claimed(ledger, run), "network 8", "trace 8")

    assert waits == [5, 20, 80, 320, 600, 600, 600]
    assert open_shards == 2
    (failure,) = ledger.failures(run)
    assert (failure.shard, failure.error, failure.traceback) == (A.name, "network 8", "trace 8")
    assert (failure.worker, failure.attempts) == ("w1", 8)
    assert ledger.claim(run, A.name, "w2") is Refusal.FAILED


def test_after_an_outage_no_worker_of_a_large_fleet_is_lost(clocked: Ledger, spec: RunSpec) -> None:
    """No finalizer has swept for longer than three sweeps: Redis was away, and no worker could renew its lease of 60 s."""
    ledger, shards = clocked, [a_shard(f"{number:04}") for number in range(1_100)]
    ledger.create_run(spec, shards, now=1.0)
    for shard in shards:
        claimed(ledger, spec.run_id, shard, owner=f"w{shard.name}")
    pass_ms(ledger, 20_000)
    ledger.take_due(spec.run_id, room=0)
    pass_ms(ledger, 50_000)

    assert [ledger.take_due(spec.run_id, room=0).again for _ in range(2)] == [[], []]
    assert ledger.counts(spec.run_id).running == 1_100
