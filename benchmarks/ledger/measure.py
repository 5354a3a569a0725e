"""Measure a long run on a real embedded Redis: enqueue it, do part of it at the pace of a fleet, and the rest at full speed."""

import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import redis
from celery import Celery

from benchmarks.ledger.records import fineweb_shards, fineweb_spec
from benchmarks.ledger.simulate import Call, Pace, Played, play
from benchmarks.results import timed
from shardsift.fleet.dispatch import queue_lost_shards, send_due_shards
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis
from shardsift.producer.planning.inputs import list_input

# A fast GPU needs 1.6 s for 8,192 rows. A real shard has 128 such windows; here it has 12, so claims are ten times as frequent.
FLEET_PACE = Pace(windows=12, window_seconds=1.6, windows_per_renewal=3)
FULL_SPEED = Pace(windows=1, window_seconds=0, windows_per_renewal=1)
_SWEEP_SECONDS = 5.0
_RESEND_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    shards: int
    workers: int
    processes: int  # that simulate the workers
    fleet_seconds: float  # duration of the part at the pace of a fleet


@dataclass(frozen=True, kw_only=True)
class Latency:
    calls: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, kw_only=True)
class Phase:
    name: str
    seconds: float
    shards: int  # that were done
    redis_cores: float  # processor time of Redis ÷ seconds
    latencies: dict[str, Latency]
    sweep: Latency  # take_due, sending messages, counts


@dataclass(frozen=True, kw_only=True)
class Enqueue:
    listing_seconds: float  # of a local folder with as many files
    create_seconds: float
    messages: int
    messages_seconds: float

    @property
    def seconds(self) -> float:
        return self.listing_seconds + self.create_seconds + self.messages_seconds


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of Redis, in bytes per shard."""

    used: float
    resident: float
    append_only_file: float  # after a rewrite: what a restart reads


@dataclass(frozen=True, kw_only=True)
class Measured:
    plan: Plan
    enqueue: Enqueue
    memory_enqueued: Memory
    memory_done: Memory
    phases: list[Phase]
    end_noticed_seconds: float  # from the last completion to the finalizer's message


def measure(plan: Plan, *, say: Callable[[str], None]) -> Measured:
    """Measure the whole run. Raises RuntimeError if a shard is not done at the end."""
    with tempfile.TemporaryDirectory() as folder, embedded_redis(Path(folder, "redis")) as url:
        settings = Settings(redis_url=url)
        ledger, app = Ledger.connect(settings), make_app("benchmark", settings)
        empty_bytes = settled(ledger.redis)["used_memory"]
        say(f"enqueue: {plan.shards:,} shards")
        run_id, enqueue = _enqueue(plan.shards, ledger, app, Path(folder, "input"))
        memory_enqueued = memory_of(ledger.redis, plan.shards, empty_bytes)
        with _finalizer(ledger) as end, _players(plan, url, run_id) as start:
            say(f"the pace of a fleet: {plan.workers} workers, {plan.fleet_seconds:.0f} s")
            fleet = _phase("fleet", lambda: start(FLEET_PACE, plan.fleet_seconds), ledger, app, run_id)
            say("full speed, to the end")
            full = _phase("full speed", lambda: start(FULL_SPEED, math.inf), ledger, app, run_id)
            if ledger.counts(run_id).done != plan.shards:
                raise RuntimeError(f"Shards were left behind: {ledger.counts(run_id)}")
            noticed = end.result(timeout=60)
        memory_done = memory_of(ledger.redis, plan.shards, empty_bytes)
        app.close()
        ledger.redis.close()
    return Measured(
        plan=plan,
        enqueue=enqueue,
        memory_enqueued=memory_enqueued,
        memory_done=memory_done,
        phases=[fleet[0], full[0]],
        end_noticed_seconds=max(0.0, noticed - full[1]),  # each process reads the clock after its own step
    )


def _enqueue(shards: int, ledger: Ledger, app: Celery, folder: Path) -> tuple[str, Enqueue]:
    for shard in fineweb_shards(shards):
        file = folder / f"{shard.name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    spec = fineweb_spec(0)
    _, listing = timed(list_input, str(folder))
    _, create = timed(ledger.create_run, spec, fineweb_shards(shards), now=time.time())
    messages, sending = timed(send_due_shards, app, ledger, spec.run_id)
    return spec.run_id, Enqueue(
        listing_seconds=listing, create_seconds=create, messages=messages, messages_seconds=sending
    )


Start = Callable[[Pace, float], list[Future[Played]]]


@contextmanager
def _players(plan: Plan, url: str, run_id: str) -> Iterator[Start]:
    """Yield a function that starts all workers at a pace for some seconds, distributed among the processes."""
    names = [f"gpu-{number:03}" for number in range(plan.workers)]

    with ProcessPoolExecutor(plan.processes, mp_context=get_context("spawn")) as pool:

        def start(pace: Pace, seconds: float) -> list[Future[Played]]:
            shares = [names[number :: plan.processes] for number in range(plan.processes)]
            return [pool.submit(play, url, run_id, share, pace, seconds) for share in shares]

        yield start


def _phase(
    name: str, start: Callable[[], list[Future[Played]]], ledger: Ledger, app: Celery, run_id: str
) -> tuple[Phase, float]:
    """Measure a phase, sweeping as a finalizer does. Returns the phase, and the time of its last completed shard."""
    done_before, cpu_before, started = ledger.counts(run_id).done, _cpu_seconds(ledger.redis), time.monotonic()
    playing, sweeps = start(), []
    while True:
        sweeps.append(timed(_sweep, ledger, app, run_id)[1])
        if not wait(playing, timeout=_SWEEP_SECONDS).not_done:
            break
    sweeps.append(timed(_sweep, ledger, app, run_id)[1])
    seconds = time.monotonic() - started
    played = [future.result() for future in playing]
    latencies = {call.value: _latency([one for part in played for one in part.seconds[call]]) for call in Call}
    phase = Phase(
        name=name,
        seconds=seconds,
        shards=ledger.counts(run_id).done - done_before,
        redis_cores=(_cpu_seconds(ledger.redis) - cpu_before) / seconds,
        latencies=latencies,
        sweep=_latency(sweeps),
    )
    return phase, max(part.last_completion for part in played)


def _sweep(ledger: Ledger, app: Celery, run_id: str) -> None:
    queue_lost_shards(ledger, run_id, resend_seconds=_RESEND_SECONDS)
    send_due_shards(app, ledger, run_id)
    ledger.counts(run_id)


@contextmanager
def _finalizer(ledger: Ledger) -> Iterator[Future[float]]:
    """Wait in a thread for the end of the run, as a finalizer does.

    Yields a future of the `time.monotonic()` at which the thread learned of the end.
    """
    over = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(_first_wake, ledger, over)
        finally:
            over.set()


def _first_wake(ledger: Ledger, over: threading.Event) -> float:
    while not over.is_set():
        if ledger.wait_for_finished_run(1.0):
            return time.monotonic()
    return math.nan


def memory_of(client: redis.Redis, shards: int, empty_bytes: int) -> Memory:
    settled(client)
    client.bgrewriteaof()
    found = settled(client)
    return Memory(
        used=(found["used_memory"] - empty_bytes) / shards,
        resident=found["used_memory_rss"] / shards,
        append_only_file=client.info("persistence")["aof_current_size"] / shards,
    )


def settled(client: redis.Redis) -> dict[str, int]:
    """Wait until Redis has finished rewriting its file, and return its memory figures."""
    while client.info("persistence")["aof_rewrite_in_progress"] or client.info("persistence")["aof_rewrite_scheduled"]:
        time.sleep(0.1)
    return dict(client.info("memory"))


def _cpu_seconds(client: redis.Redis) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def _latency(seconds: list[float]) -> Latency:
    ordered = sorted(seconds) or [math.nan]
    return Latency(
        calls=len(seconds),
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
        max_ms=ordered[-1] * 1000,
    )
