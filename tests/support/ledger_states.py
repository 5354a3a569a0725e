"""Put shards of a run into a given state. The clock of a real server cannot be moved, so recorded times are moved back."""

import redis

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.run.spec import Shard
from support.records import a_shard

A, B, C = a_shard("a"), a_shard("b"), a_shard("c/d")
OUTAGE_SECONDS = 45.0  # three sweeps; if none ran for longer than this, Redis was away


def claimed(ledger: Ledger, run_id: str, shard: Shard = A, *, owner: str = "w1") -> Claim:
    claim = ledger.claim(run_id, shard.name, owner)
    assert isinstance(claim, Claim), claim
    return claim


def redis_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds * 1000 + microseconds // 1000)


def end_lease(client: redis.Redis, run_id: str, shard: Shard = A, *, seconds_ago: float) -> None:
    ended = redis_ms(client) - seconds_ago * 1000
    assert client.zadd(f"shardsift:run:{run_id}:running", {shard.name: ended}, xx=True, ch=True) == 1


def end_back_off(client: redis.Redis, run_id: str, shard: Shard = A) -> None:
    client.zadd(f"shardsift:run:{run_id}:waiting", {shard.name: 1}, xx=True)


def no_sweep_for(client: redis.Redis, run_id: str, seconds: float) -> None:
    client.hset(f"shardsift:run:{run_id}", "looked_ms", int(redis_ms(client) - seconds * 1000))
