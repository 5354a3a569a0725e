"""What the ledger says of runs, trainings, workers, machines and its own server, as metrics by Prometheus' conventions.

Nothing is kept between two scrapes, so any number of finalizers may serve the same metrics, and one target is enough
however many machines come and go.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import fmean

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.attempt_report import AttemptReport
from fleet.demand import open_demands
from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from producer.cost import LISTED, seconds_by_device
from producer.metrics.labels import device_label
from producer.metrics.trainings import training_metrics
from producer.status import Present, RunStatus, run_status

_FINISHED_RUNS = 20  # the newest; all others that are over are left out
_STATES = ("queued", "running", "done", "failed")
_FATES = ("kept", "dropped", "errored")


class FleetCollector(Collector):
    """Reads the ledger at each scrape. While Redis does not answer, there is only `shardsift_up`, which is 0."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._trainings = ledger, ledger.trainings

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
        statuses = self._statuses(present)
        yield from _of_runs(statuses)
        yield from _of_costs(statuses)
        yield from _of_devices(statuses)
        yield from training_metrics(self._trainings, present)
        yield from _of_queues(self._ledger)
        yield from _of_fleet(present)
        yield from _of_server(self._ledger)

    def _statuses(self, present: Present) -> list[RunStatus]:
        found, finished = [], 0
        for run_id in self._ledger.run_ids():  # newest first
            try:
                status = run_status(self._ledger, run_id, present=present, most_failures=1)
            except NewerVersion:
                continue
            finished += status.is_over
            if not status.is_over or finished <= _FINISHED_RUNS:
                found.append(status)
        return found


def _of_runs(statuses: list[RunStatus]) -> Iterator[Metric]:
    shards = GaugeMetricFamily("shardsift_shards", "Shards of a run by state.", labels=["run", "state"])
    rows = CounterMetricFamily(
        "shardsift_rows", "Rows of shards that are done, by what became of them.", labels=["run", "fate"]
    )
    scored = CounterMetricFamily("shardsift_rows_scored", "Rows scored, each counted once.", labels=["run"])
    worked = CounterMetricFamily(
        "shardsift_worker_seconds",
        "Time in which workers have held shards of a run, summed over workers.",
        labels=["run"],
    )
    spent = CounterMetricFamily(
        "shardsift_phase_seconds",
        "Where the time of the attempts went that have finished a shard.",
        labels=["run", "phase"],
    )
    tokens = CounterMetricFamily("shardsift_tokens", "Tokens of the shards that are done.", labels=["run"])
    idle = GaugeMetricFamily(
        "shardsift_run_idle_seconds", "Time since a row of the run was last scored.", labels=["run"]
    )
    left = GaugeMetricFamily(
        "shardsift_run_remaining_seconds", "Estimated time until the last open shard is done.", labels=["run"]
    )
    published = GaugeMetricFamily(
        "shardsift_run_published", "1 if the run is published with all shards that are done.", labels=["run"]
    )
    unpublished = GaugeMetricFamily(
        "shardsift_run_publish_error", "1 if the last attempt to publish the run failed.", labels=["run"]
    )
    paused = GaugeMetricFamily(
        "shardsift_run_paused", "1 if the run is paused: its open shards wait for `producer resume`.", labels=["run"]
    )
    served = GaugeMetricFamily(
        "shardsift_run_workers", "Workers that have the models of the run loaded, or load them.", labels=["run"]
    )
    stalled = GaugeMetricFamily(
        "shardsift_run_stalled_workers",
        "Workers that hold a shard of the run, and have made no progress for five minutes.",
        labels=["run"],
    )
    for status in statuses:
        run, counts = [status.run_id], status.counts
        for state in _STATES:
            shards.add_metric([*run, state], getattr(counts, state))
        for fate in _FATES:
            rows.add_metric([*run, fate], getattr(counts, f"rows_{fate}"))
        scored.add_metric(run, status.pace.rows)
        worked.add_metric(run, counts.worker_seconds)
        tokens.add_metric(run, counts.tokens)
        for phase, seconds in counts.phase_seconds.items():
            spent.add_metric([*run, phase], seconds)
        published.add_metric(run, status.is_published)
        unpublished.add_metric(run, status.publish_error is not None and not status.is_published)
        paused.add_metric(run, status.is_paused)
        served.add_metric(run, len(status.workers))
        stalled.add_metric(run, len(status.stalled))
        if status.pace.idle_seconds is not None and not status.is_over and not status.is_paused:
            idle.add_metric(run, status.pace.idle_seconds)
        if status.remaining:
            left.add_metric(run, (status.remaining.low + status.remaining.high) / 2)
    yield from (
        shards,
        rows,
        scored,
        worked,
        spent,
        tokens,
        idle,
        left,
        published,
        unpublished,
        paused,
        served,
        stalled,
    )


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
    machines.add_metric([], len(present.machines))
    free = GaugeMetricFamily("shardsift_free_machines", "Machines with a worker that has no shard.")
    free.add_metric([], sum(machine.free > 0 for machine in present.machines))
    yield from (workers, machines, free)


def _of_server(ledger: Ledger) -> Iterator[Metric]:
    memory = ledger.redis.info("memory")
    used = GaugeMetricFamily("shardsift_redis_memory_bytes", "Memory that Redis uses.")
    used.add_metric([], memory["used_memory"])
    most = GaugeMetricFamily("shardsift_redis_memory_limit_bytes", "Memory that Redis may use; 0 if there is no limit.")
    most.add_metric([], memory["maxmemory"])
    yield from (used, most)
