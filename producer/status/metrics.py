"""What the ledger says of runs, workers, machines and its own server, as metrics by Prometheus' conventions.

Nothing is kept between two scrapes, so any number of finalizers may serve the same metrics, and one target is enough
however many machines come and go.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import TypeAlias

import redis
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.announcements import hosts
from fleet.presence.demand import open_demands
from fleet.run.receipt import AttemptReport
from producer.status import Present, RunStatus, run_status
from producer.status.cost import LISTED, UNKNOWN, seconds_by_device


class FleetCollector(Collector):
    """Reads the ledger at each scrape. While Redis does not answer, there is only `shardsift_up`, which is 0."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def describe(self) -> list[Metric]:
        return []  # so that registering it does not read the ledger

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("shardsift_up", "1 if Redis has answered.")
        try:
            found = list(self._collected())
        except redis.RedisError:
            found = []
        up.add_metric([], bool(found))
        yield from (up, *found)

    def _collected(self) -> Iterator[Metric]:
        present = Present.read(self._ledger.redis)
        yield from run_metrics(self._ledger, present)
        yield from _of_queues(self._ledger)
        yield from _of_fleet(present)
        yield from _of_server(self._ledger)


def _of_queues(ledger: Ledger) -> Iterator[Metric]:
    shards = GaugeMetricFamily(
        "shardsift_queue_shards", "Open shards of a queue: queued ones have no worker.", labels=["queue", "state"]
    )
    for demand in open_demands(ledger):
        shards.add_metric([demand.queue, "queued"], demand.queued)
        shards.add_metric([demand.queue, "running"], demand.running)
    yield shards
    refused = CounterMetricFamily(
        "shardsift_refused", "What was refused because no intact process of the fleet sends it.", labels=["what"]
    )
    for what, times in ledger.refused().items():
        refused.add_metric([what], times)
    yield refused


def _of_fleet(present: Present) -> Iterator[Metric]:
    workers = GaugeMetricFamily(
        "shardsift_workers", "Workers by what they do and by kind of device.", labels=["activity", "device"]
    )
    for (activity, device), number in Counter((one.activity, one.device or "") for one in present.workers).items():
        workers.add_metric([activity, device], number)
    machines = GaugeMetricFamily("shardsift_machines", "Machines that run `worker start`.")
    machines.add_metric([], len(hosts(present.machines)))
    free = GaugeMetricFamily("shardsift_free_machines", "Machines with a worker that has no shard.")
    free.add_metric([], len(hosts(machine for machine in present.machines if machine.free)))
    yield from (workers, machines, free)


def _of_server(ledger: Ledger) -> Iterator[Metric]:
    memory = ledger.redis.info("memory")
    used = GaugeMetricFamily("shardsift_redis_memory_bytes", "Memory that Redis uses.")
    used.add_metric([], memory["used_memory"])
    most = GaugeMetricFamily("shardsift_redis_memory_limit_bytes", "Memory that Redis may use; 0 if there is no limit.")
    most.add_metric([], memory["maxmemory"])
    yield from (used, most)


# What the ledger says of runs, as metrics by Prometheus' conventions.

_FINISHED_RUNS = 20  # the newest; all others that are over are left out


def run_metrics(ledger: Ledger, present: Present) -> Iterator[Metric]:
    statuses = _statuses(ledger, present)
    yield from _of_runs(statuses)
    yield from _of_costs(statuses)
    yield from _of_devices(statuses)


def _statuses(ledger: Ledger, present: Present) -> list[RunStatus]:
    found, finished = [], 0
    for run_id in ledger.run_ids():  # newest first
        status = run_status(ledger, run_id, present=present, most_failures=1)
        finished += status.is_over
        if not status.is_over or finished <= _FINISHED_RUNS:
            found.append(status)
    return found


_Kind: TypeAlias = type[CounterMetricFamily] | type[GaugeMetricFamily]


def _has_publish_error(status: RunStatus) -> bool:
    return status.publish_error is not None and not status.is_published


def _idle_seconds(status: RunStatus) -> float | None:
    """Of a run that should be scored now, else None."""
    return None if status.is_over or status.is_paused else status.pace.idle_seconds


def _remaining_seconds(status: RunStatus) -> float | None:
    return (status.remaining.low + status.remaining.high) / 2 if status.remaining else None


_PER_RUN: tuple[tuple[_Kind, str, str, Callable[[RunStatus], float | None]], ...] = (
    (CounterMetricFamily, "shardsift_rows_scored", "Rows scored, each counted once.", lambda run: run.pace.rows),
    (CounterMetricFamily, "shardsift_tokens", "Tokens of the shards that are done.", lambda run: run.counts.tokens),
    (
        CounterMetricFamily,
        "shardsift_worker_seconds",
        "Time in which workers have held shards of a run, summed over workers.",
        lambda run: run.counts.worker_seconds,
    ),
    (GaugeMetricFamily, "shardsift_run_idle_seconds", "Time since a row of the run was last scored.", _idle_seconds),
    (
        GaugeMetricFamily,
        "shardsift_run_remaining_seconds",
        "Estimated time until the last open shard is done.",
        _remaining_seconds,
    ),
    (
        GaugeMetricFamily,
        "shardsift_run_published",
        "1 if the run is published with all shards that are done.",
        lambda run: run.is_published,
    ),
    (
        GaugeMetricFamily,
        "shardsift_run_publish_error",
        "1 if the last attempt to publish the run failed.",
        _has_publish_error,
    ),
    (
        GaugeMetricFamily,
        "shardsift_run_paused",
        "1 if the run is paused: its open shards wait for `producer resume`.",
        lambda run: run.is_paused,
    ),
    (
        GaugeMetricFamily,
        "shardsift_run_workers",
        "Workers that have the models of the run loaded, or load them.",
        lambda run: len(run.workers),
    ),
    (
        GaugeMetricFamily,
        "shardsift_run_stalled_workers",
        "Workers that hold a shard of the run, and have made no progress for five minutes.",
        lambda run: len(run.stalled),
    ),
)
_PER_RUN_AND_LABEL: tuple[tuple[_Kind, str, str, str, Callable[[RunStatus], Mapping[str, float]]], ...] = (
    (
        GaugeMetricFamily,
        "shardsift_shards",
        "Shards of a run by state.",
        "state",
        lambda run: {state: getattr(run.counts, state) for state in ("queued", "running", "done", "failed")},
    ),
    (
        CounterMetricFamily,
        "shardsift_rows",
        "Rows of shards that are done, by what became of them.",
        "fate",
        lambda run: {fate: getattr(run.counts, f"rows_{fate}") for fate in ("kept", "dropped", "errored")},
    ),
    (
        CounterMetricFamily,
        "shardsift_phase_seconds",
        "Where the time of the attempts went that have finished a shard.",
        "phase",
        lambda run: run.counts.phase_seconds,
    ),
)


def _of_runs(statuses: list[RunStatus]) -> Iterator[Metric]:
    """By the tables above."""
    for kind, name, documentation, value in _PER_RUN:
        metric = kind(name, documentation, labels=["run"])
        for status in statuses:
            if (found := value(status)) is not None:
                metric.add_metric([status.run_id], found)
        yield metric
    for kind, name, documentation, label, values in _PER_RUN_AND_LABEL:
        metric = kind(name, documentation, labels=["run", label])
        for status in statuses:
            for key, found in values(status).items():
                metric.add_metric([status.run_id, key], found)
        yield metric


def _of_costs(statuses: list[RunStatus]) -> Iterator[Metric]:
    """The cost is a gauge, because a new price is that of the time before it too."""
    labels = ["run", "device"]
    seconds = CounterMetricFamily(
        "shardsift_device_seconds",
        "The worker seconds of a run by device; those that no device was reported for are of `unknown`.",
        labels=labels,
    )
    cost = GaugeMetricFamily(
        "shardsift_cost",
        "What these seconds cost: by the price that was given for a GPU-hour, or by the list price of the device in US dollars.",
        labels=[*labels, "price"],
    )
    for status in statuses:
        for device, spent in seconds_by_device(status.counts).items():
            seconds.add_metric([status.run_id, device_label(device)], spent)
        if status.cost:
            price = "list" if status.cost.price_from == LISTED else "given"
            for one in status.cost.devices:
                if one.device_cost is not None:
                    cost.add_metric([status.run_id, device_label(one.device), price], one.device_cost)
    yield from (seconds, cost)


def _of_devices(statuses: list[RunStatus]) -> Iterator[Metric]:
    """Means over workers, because a series for each worker would leave many behind where machines come and go."""
    labels = ["run", "device"]
    of_peak = GaugeMetricFamily(
        "shardsift_peak_share", "Share of the device's matmul peak that workers with a shard reach.", labels=labels
    )
    of_memory = GaugeMetricFamily(
        "shardsift_device_memory_share", "Share of the device's memory that is taken.", labels=labels
    )
    busy = GaugeMetricFamily(
        "shardsift_device_busy_share", "Share of the last second in which the device computed anything.", labels=labels
    )
    for status in statuses:
        for device, reports in _by_device(status).items():
            for family, shares in (
                (of_peak, [report.peak_share for report in reports]),
                (of_memory, [report.memory_share for report in reports]),
                (busy, [report.busy_share for report in reports]),
            ):
                if known := [share for share in shares if share is not None]:
                    family.add_metric([status.run_id, device], fmean(known))
    yield from (of_peak, of_memory, busy)


def _by_device(status: RunStatus) -> dict[str, list[AttemptReport]]:
    found: dict[str, list[AttemptReport]] = defaultdict(list)
    for shard in status.running:
        if shard.report:
            found[shard.report.device].append(shard.report)
    return found


# Values of labels that several metrics share.


def device_label(device: str) -> str:
    return "unknown" if device == UNKNOWN else device


# Serve the metrics over HTTP, read-only and without a password: `GET /metrics`.


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
