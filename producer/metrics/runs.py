"""What the ledger says of runs, as metrics by Prometheus' conventions."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fleet.attempt_report import AttemptReport
from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from producer.cost import LISTED, seconds_by_device
from producer.metrics.labels import device_label
from producer.status import Present, RunStatus, run_status

_FINISHED_RUNS = 20  # the newest; all others that are over are left out


def run_metrics(ledger: Ledger, present: Present) -> Iterator[Metric]:
    statuses = _statuses(ledger, present)
    yield from _of_runs(statuses)
    yield from _of_costs(statuses)
    yield from _of_devices(statuses)


def _statuses(ledger: Ledger, present: Present) -> list[RunStatus]:
    found, finished = [], 0
    for run_id in ledger.run_ids():  # newest first
        try:
            status = run_status(ledger, run_id, present=present, most_failures=1)
        except NewerVersion:
            continue
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
