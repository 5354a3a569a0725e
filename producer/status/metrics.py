"""Serve Prometheus metrics about runs, workers, machines and the Redis server: `GET /metrics`, read-only.

Nothing is kept between scrapes, so any number of finalizers may serve the same metrics; scrape one of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean
from typing import Literal, TypeAlias

import redis
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily as Total
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import hosts
from shardsift.fleet.presence.demand import open_demands
from shardsift.producer.status import Present, RunStatus, run_statuses

_FINISHED_RUNS = 20  # older finished runs are left out

_Samples: TypeAlias = Iterable[
    tuple[tuple[str, ...], float | None]
]  # values of the labels, and the number if it is known


def serve_metrics(ledger: Ledger, *, address: str, port: int) -> None:
    """Serve in a thread until the process ends. Raises UsageError if the port is taken."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    try:
        start_http_server(port, address, registry=registry)
    except OSError as error:
        raise UsageError(
            f"Cannot serve metrics on {address}:{port}: {error.strerror}. Choose another SHARDSIFT_METRICS_PORT or "
            "SHARDSIFT_METRICS_ADDRESS."
        ) from error


class FleetCollector(Collector):
    """Reads the ledger at each scrape. While Redis does not answer, the only metric is `shardsift_up 0`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def describe(self) -> list[Metric]:
        return []  # so that registering this collector does not read the ledger

    def collect(self) -> Iterator[Metric]:
        try:
            found = list(self._collected())
        except redis.RedisError:
            found = []
        yield _gauge("shardsift_up", "1 if Redis has answered.", [((), bool(found))])
        yield from found

    def _collected(self) -> Iterator[Metric]:
        present = Present.read(self._ledger.redis)
        yield from _of_runs(_shown_runs(self._ledger, present))
        yield from _of_queues(self._ledger, present)
        yield from _of_fleet(present)
        yield from _of_server(self._ledger)


def _shown_runs(ledger: Ledger, present: Present) -> list[RunStatus]:
    shown, finished = [], 0
    for status in run_statuses(ledger, present):
        finished += status.is_over
        if not status.is_over or finished <= _FINISHED_RUNS:
            shown.append(status)
    return shown


def _of_runs(statuses: list[RunStatus]) -> Iterator[Metric]:
    for kind, name, documentation, labels, samples in _PER_RUN:
        metric = kind(name, documentation, labels=["run", *labels])
        for status in statuses:
            _add(metric, samples(status), status.run_id)
        yield metric


def _of_queues(ledger: Ledger, present: Present) -> Iterator[Metric]:
    demands = list(open_demands(ledger))
    serving = Counter(worker.queue for worker in present.workers if worker.activity != "stopping")
    queued = [((demand.queue, "queued"), demand.queued) for demand in demands]
    running = [((demand.queue, "running"), demand.running) for demand in demands]
    yield _gauge(
        "shardsift_queue_shards",
        "Open shards of a queue: queued ones have no worker.",
        [*queued, *running],
        ["queue", "state"],
    )
    yield _gauge(
        "shardsift_queue_workers",
        "Workers that serve a queue with open shards, or load its models.",
        [((demand.queue,), serving[demand.queue]) for demand in demands],
        ["queue"],
    )
    yield _gauge(
        "shardsift_open_shards",
        "Queued and running shards of all runs that are not paused, for an autoscaler.",
        [((), sum(demand.queued + demand.running for demand in demands))],
    )


def _of_fleet(present: Present) -> Iterator[Metric]:
    workers = Counter((one.activity, one.device or "") for one in present.workers)
    free = hosts(machine for machine in present.machines if machine.free)
    yield _gauge(
        "shardsift_workers",
        "Workers by what they do and by kind of device.",
        list(workers.items()),
        ["activity", "device"],
    )
    yield _gauge("shardsift_machines", "Machines that run `worker start`.", [((), len(hosts(present.machines)))])
    yield _gauge("shardsift_free_machines", "Machines with a worker that has no shard.", [((), len(free))])


def _of_server(ledger: Ledger) -> Iterator[Metric]:
    memory = ledger.redis.info("memory")
    yield _gauge("shardsift_redis_memory_bytes", "Memory that Redis uses.", [((), memory["used_memory"])])
    yield _gauge(
        "shardsift_redis_memory_limit_bytes",
        "Memory that Redis may use; 0 if there is no limit.",
        [((), memory["maxmemory"])],
    )


def _gauge(name: str, documentation: str, samples: _Samples, labels: Iterable[str] = ()) -> Metric:
    metric = Gauge(name, documentation, labels=list(labels))
    _add(metric, samples)
    return metric


def _add(metric: Total | Gauge, samples: _Samples, *first_labels: str) -> None:
    for labels, number in samples:
        if number is not None:
            metric.add_metric([*first_labels, *labels], number)


def _one(value: Callable[[RunStatus], float | None]) -> Callable[[RunStatus], _Samples]:
    return lambda run: [((), value(run))]


def _shards(run: RunStatus) -> _Samples:
    return [((state,), getattr(run.counts, state)) for state in ("queued", "running", "done", "failed")]


def _rows(run: RunStatus) -> _Samples:
    return [((fate,), getattr(run.counts, f"rows_{fate}")) for fate in ("kept", "dropped", "errored")]


def _phases(run: RunStatus) -> _Samples:
    return [((phase,), seconds) for phase, seconds in run.counts.phase_seconds.items()]


def _idle_seconds(run: RunStatus) -> float | None:
    """Return the seconds since a row was scored. None if no worker should score the run now."""
    is_due = run.counts.open and not (run.is_over or run.is_paused or run.word == "queued")
    return run.pace.idle_seconds if is_due else None


def _stalled_workers(run: RunStatus) -> int:
    return len({shard.worker for shard in run.stalled})


def _failed_attempts(run: RunStatus) -> int:
    return run.counts.failed_attempts if run.counts.open else 0


def _left(run: RunStatus) -> float | None:
    return (run.remaining.low + run.remaining.high) / 2 if run.remaining else None


def _has_publish_error(run: RunStatus) -> bool:
    return run.publish_error is not None and not run.is_published


def _mean(share: Literal["peak_share", "memory_share", "busy_share"]) -> Callable[[RunStatus], _Samples]:
    """Return a function that computes the mean of a share over the running shards, for each device.

    There is no series for each worker, because it would remain after the worker's machine is gone.
    """

    def means(run: RunStatus) -> _Samples:
        known = defaultdict(list)
        for report in (shard.report for shard in run.running if shard.report):
            if (found := getattr(report, share)) is not None:
                known[report.device].append(found)
        return [((device,), fmean(shares)) for device, shares in known.items()]

    return means


_Family: TypeAlias = tuple[type[Total] | type[Gauge], str, str, tuple[str, ...], Callable[[RunStatus], _Samples]]
_PER_RUN: tuple[_Family, ...] = (
    (Total, "shardsift_rows_scored", "Rows scored, each counted once.", (), _one(lambda run: run.pace.rows)),
    (Gauge, "shardsift_run_idle_seconds", "Time since a row of the run was last scored.", (), _one(_idle_seconds)),
    (Gauge, "shardsift_run_remaining_seconds", "Estimated time until the last open shard is done.", (), _one(_left)),
    (Gauge, "shardsift_run_published", "1 if published with all done shards.", (), _one(lambda run: run.is_published)),
    (Gauge, "shardsift_run_publish_error", "1 if the last attempt to publish failed.", (), _one(_has_publish_error)),
    (Gauge, "shardsift_run_paused", "1 if its open shards wait for `resume`.", (), _one(lambda run: run.is_paused)),
    (Gauge, "shardsift_run_workers", "Workers that have or load its models.", (), _one(lambda run: len(run.workers))),
    (Gauge, "shardsift_run_stalled_workers", "Workers that report no progress.", (), _one(_stalled_workers)),
    (Gauge, "shardsift_run_failed_attempts", "That failed since a shard was done.", (), _one(_failed_attempts)),
    (Gauge, "shardsift_shards", "Shards of a run by state.", ("state",), _shards),
    (Total, "shardsift_rows", "Rows of shards that are done, by what became of them.", ("fate",), _rows),
    (Total, "shardsift_phase_seconds", "Where the time of the finished attempts went.", ("phase",), _phases),
    (Gauge, "shardsift_peak_share", "Share of the device's matmul peak reached.", ("device",), _mean("peak_share")),
    (Gauge, "shardsift_device_memory_share", "Share of its memory taken.", ("device",), _mean("memory_share")),
    (Gauge, "shardsift_device_busy_share", "Share of the last second in use.", ("device",), _mean("busy_share")),
)
