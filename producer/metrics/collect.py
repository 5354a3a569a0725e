"""What the ledger says of runs, workers, machines and its own server, as metrics by Prometheus' conventions.

Nothing is kept between two scrapes, so any number of finalizers may serve the same metrics, and one target is enough
however many machines come and go.
"""

from collections import Counter
from collections.abc import Iterator

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.demand import open_demands
from fleet.ledger import Ledger
from fleet.machines import hosts
from producer.metrics.runs import run_metrics
from producer.status import Present


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
