"""Put shards of a run into a given state. The clock of a real server cannot be moved, so recorded times are moved back."""

import redis

from fleet.ledger import Claim, Ledger
from fleet.ledger.base import Keys
from fleet.run.spec import Shard
from support.records import a_shard

A, B, C = a_shard("a"), a_shard("b"), a_shard("c/d")
LEASE_SECONDS, SWEEP_SECONDS = 60.0, 15.0
OUTAGE_SECONDS = 3 * SWEEP_SECONDS  # if no sweep ran for longer than this, Redis was away
REFUSED_OUTPUTS = "outputs of attempts that had lost their shard"


def claimed(ledger: Ledger, run_id: str, shard: Shard = A, *, owner: str = "w1") -> Claim:
    claim = ledger.claim(run_id, shard.name, owner)
    assert isinstance(claim, Claim), claim
    return claim


def again(ledger: Ledger, run_id: str, *, room: int = 0) -> list[str]:
    """The shards that are due again. By default there is no room for fresh ones."""
    return ledger.take_due(run_id, room=room).again


def fresh(ledger: Ledger, run_id: str, *, room: int = 2_000) -> list[str]:
    return ledger.take_due(run_id, room=room).fresh


def resent(ledger: Ledger, run_id: str, *, resend_seconds: float = 60.0) -> list[str]:
    """The shards that are due again because their messages, sent `resend_seconds` ago, are lost."""
    lost = ledger.sent_before(run_id, seconds=resend_seconds)
    assert ledger.queue_again(run_id, lost, seconds=resend_seconds) == lost
    return again(ledger, run_id)


def redis_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds * 1000 + microseconds // 1000)


def end_lease(client: redis.Redis, run_id: str, shard: Shard = A, *, seconds_ago: float = 0.001) -> None:
    ended = redis_ms(client) - seconds_ago * 1000
    assert client.zadd(f"shardsift:run:{run_id}:running", {shard.name: ended}, xx=True, ch=True) == 1


def end_back_off(client: redis.Redis, run_id: str, shard: Shard = A) -> None:
    client.zadd(f"shardsift:run:{run_id}:waiting", {shard.name: 1}, xx=True)


def age_messages(client: redis.Redis, run_id: str, *, seconds: float = 100) -> None:
    sent = f"shardsift:run:{run_id}:sent"
    client.zadd(sent, dict.fromkeys(client.zrange(sent, 0, -1), redis_ms(client) - seconds * 1000))


def no_sweep_for(client: redis.Redis, run_id: str, seconds: float) -> None:
    client.hset(f"shardsift:run:{run_id}", "looked_ms", int(redis_ms(client) - seconds * 1000))


def move_clock(client: redis.Redis, run_id: str, *, seconds: float) -> None:
    """The clock of Redis jumps, back if `seconds` is negative: every time that the ledger has stored moves the other way."""
    keys, ms = Keys(run_id), int(-seconds * 1000)
    for places in (keys.waiting, keys.sent, keys.running):
        for name in client.zrangebyscore(places, "(0", "+inf"):
            client.zincrby(places, ms, name)
    client.hincrby(keys.run, "looked_ms", ms)
    for key in client.scan_iter(f"{keys.attempts('')}*"):
        client.hincrby(key, "noted_ms", ms)


def checkpoint_bytes(client: redis.Redis, run_id: str) -> int:
    return int(client.hget(f"shardsift:run:{run_id}", "checkpoint_bytes") or 0)


def refused_outputs(ledger: Ledger) -> int:
    return ledger.refused().get(REFUSED_OUTPUTS, 0)


def crash_by_expiry(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    """The whole machine died, and a sweep found the expired lease."""
    claimed(ledger, run_id, owner=worker)
    end_lease(client, run_id)
    again(ledger, run_id)


def crash_by_report(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    """The parent process of the worker noticed that its child died."""
    claimed(ledger, run_id, owner=worker)
    ledger.report_crash(run_id, A.name, worker, "killed by signal 9", "the child's last words")


def crash_by_exception(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    ledger.record_crash(claimed(ledger, run_id, owner=worker), "KeyError: 7", "trace")
    end_back_off(client, run_id)
