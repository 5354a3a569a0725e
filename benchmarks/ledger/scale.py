"""What grows with the run: the same ledger with ten and a hundred times the shards, without workers."""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks.ledger.clock import timed
from benchmarks.ledger.measure import Memory, memory_of, settled
from benchmarks.ledger.records import fineweb_shards, fineweb_spec, receipt_of
from fleet.ledger import Ledger
from fleet.settings import Settings
from producer.local.redis_server import embedded_redis

_SWEEPS = 20
_PAUSE_MICROSECONDS = 1_000
_SLOW_ENTRIES = 100_000


@dataclass(frozen=True, kw_only=True)
class Size:
    """A run of so many shards."""

    shards: int
    create_seconds: float
    sweep_ms: float  # take_due and counts, the median
    restore_seconds: float  # all receipts, as after a loss of Redis
    receipts_seconds: float  # read back, as the finalizer does before it publishes
    first_receipt_seconds: float  # the names of all of them
    retry_all_seconds: float
    longest_pause_ms: float  # of Redis, in any of these: other clients wait so long
    restart_seconds: float  # Redis reads its data
    enqueued: Memory
    done: Memory


def measure_size(shards: int, *, say: Callable[[str], None]) -> Size:
    say(f"a run of {shards:,} shards, without workers")
    spec = fineweb_spec(shards)
    with tempfile.TemporaryDirectory() as folder, embedded_redis(Path(folder)) as url:
        ledger = Ledger.connect(Settings(redis_url=url))
        ledger.redis.config_set("slowlog-log-slower-than", _PAUSE_MICROSECONDS)
        ledger.redis.config_set("slowlog-max-len", _SLOW_ENTRIES)
        empty_bytes = settled(ledger.redis)["used_memory"]
        _, create = timed(ledger.create_run, spec, fineweb_shards(shards), now=time.time())
        enqueued = memory_of(ledger.redis, shards, empty_bytes)
        sweeps = sorted(timed(_sweep, ledger, spec.run_id)[1] for _ in range(_SWEEPS))
        receipts = (receipt_of(spec.run_id, shard, token="123456-0123456789ab") for shard in fineweb_shards(shards))
        _, restore = timed(ledger.restore, spec.run_id, receipts)
        done = memory_of(ledger.redis, shards, empty_bytes)
        _, restart = timed(_read_anew, url)
        reading = ledger.receipts(spec.run_id)
        _, first = timed(next, reading)
        _, others = timed(_exhaust, reading)
        _, retry = timed(ledger.retry, spec.run_id, done_too=True)
        longest_pause = _longest_pause_ms(ledger)
        ledger.redis.close()
    return Size(
        shards=shards,
        create_seconds=create,
        sweep_ms=sweeps[_SWEEPS // 2] * 1000,
        restore_seconds=restore,
        receipts_seconds=first + others,
        first_receipt_seconds=first,
        retry_all_seconds=retry,
        longest_pause_ms=longest_pause,
        restart_seconds=restart,
        enqueued=enqueued,
        done=done,
    )


def _sweep(ledger: Ledger, run_id: str) -> None:
    ledger.take_due(run_id, room=1)
    ledger.counts(run_id)


def _exhaust(things: Iterable[object]) -> None:
    for _ in things:
        pass


def _longest_pause_ms(ledger: Ledger) -> float:
    """Redis does one thing at a time; its log holds the last of those that took long."""
    entries = ledger.redis.slowlog_get(_SLOW_ENTRIES)
    return max((entry["duration"] / 1000 for entry in entries if b"LOADAOF" not in entry["command"]), default=0.0)


def _read_anew(redis_url: str) -> None:
    """What a restart does before it answers; Redis 7 and later refuse it unless told otherwise."""
    with redis.Redis.from_url(redis_url, socket_timeout=600) as patient:
        patient.execute_command("DEBUG", "LOADAOF")
