"""Measure what grows with the run: the same ledger with ten times and a hundred times as many shards, without workers."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ledger.measure import Memory, memory_of, settled
from benchmarks.ledger.records import fineweb_shards, fineweb_spec, receipt_of
from benchmarks.results import timed
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis

_SWEEPS = 20
_PAUSE_MICROSECONDS = 1_000
_SLOW_ENTRIES = 100_000


@dataclass(frozen=True, kw_only=True)
class Size:
    shards: int
    create_seconds: float
    sweep_ms: float  # take_due and counts, the median
    restore_seconds: float  # all receipts, as after a loss of Redis
    receipts_seconds: float  # read back, as the finalizer does before it publishes
    first_receipt_seconds: float  # until the first receipt; reads the names of all
    retry_all_seconds: float
    longest_pause_ms: float  # of Redis during these calls; other clients wait this long
    restart_seconds: float  # until a stopped Redis has started and read its data
    enqueued: Memory
    done: Memory


def measure_size(shards: int, *, say: Callable[[str], None]) -> Size:
    say(f"a run of {shards:,} shards, without workers")
    spec = fineweb_spec(shards)
    with tempfile.TemporaryDirectory() as folder:
        with _ledger_in(Path(folder)) as ledger:
            empty_bytes = settled(ledger.redis)["used_memory"]
            _, create = timed(ledger.create_run, spec, fineweb_shards(shards), now=time.time())
            enqueued = memory_of(ledger.redis, shards, empty_bytes)
            sweeps = sorted(timed(_sweep, ledger, spec.run_id)[1] for _ in range(_SWEEPS))
            receipts = (receipt_of(spec.run_id, shard, token="123456-0123456789ab") for shard in fineweb_shards(shards))
            _, restore = timed(ledger.restore, spec.run_id, receipts)
            done = memory_of(ledger.redis, shards, empty_bytes)
            pause_before = _longest_pause_ms(ledger)
        stopped = time.perf_counter()
        with _ledger_in(Path(folder)) as ledger:
            restart = time.perf_counter() - stopped
            reading = ledger.receipts(spec.run_id)
            _, first = timed(next, reading)
            _, others = timed(_exhaust, reading)
            names = [shard.name for shard in fineweb_shards(shards)]
            _, retry = timed(ledger.retry, spec.run_id, changed=names)
            longest_pause = max(pause_before, _longest_pause_ms(ledger))
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


@contextmanager
def _ledger_in(folder: Path) -> Iterator[Ledger]:
    """Start a Redis with its data in this folder, and yield its ledger. Redis logs slow commands."""
    with embedded_redis(folder) as url:
        ledger = Ledger.connect(Settings(redis_url=url))
        ledger.redis.config_set("slowlog-log-slower-than", _PAUSE_MICROSECONDS)
        ledger.redis.config_set("slowlog-max-len", _SLOW_ENTRIES)
        yield ledger
        ledger.redis.close()


def _sweep(ledger: Ledger, run_id: str) -> None:
    ledger.take_due(run_id, room=1)
    ledger.counts(run_id)


def _exhaust(things: Iterable[object]) -> None:
    for _ in things:
        pass


def _longest_pause_ms(ledger: Ledger) -> float:
    """Return the duration of the longest command in the slow log. Other clients wait while Redis runs a command."""
    return max((entry["duration"] / 1000 for entry in ledger.redis.slowlog_get(_SLOW_ENTRIES)), default=0.0)
