"""How many workers the open shards of each queue need. A run's shards are counted in the ledger; see fleet/demand.py."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from fleet.demand import open_demands
from fleet.ledger import Ledger
from fleet.workers import list_workers


@dataclass(frozen=True, kw_only=True)
class QueueDemand:
    """`workers` serve the queue now, or load its models. `wanted` is how many should."""

    queue: str
    models: tuple[str, ...]
    dtype: str
    queued: int
    running: int
    workers: int
    wanted: int


def queue_demands(ledger: Ledger, *, shards_per_worker: int) -> list[QueueDemand]:
    """One for each queue with open shards, that of the oldest run first."""
    serving = Counter(worker.queue for worker in list_workers(ledger.redis) if worker.activity != "stopping")
    return [
        QueueDemand(
            queue=demand.queue,
            models=tuple(model.name for model in demand.load.models),
            dtype=demand.load.dtype,
            queued=demand.queued,
            running=demand.running,
            workers=serving[demand.queue],
            wanted=math.ceil((demand.queued + demand.running) / shards_per_worker),
        )
        for demand in open_demands(ledger)
    ]


def demand_json(demands: Sequence[QueueDemand]) -> dict[str, Any]:
    """Sums over all queues, then each queue. The sums are there, and 0, if nothing is open."""
    sums = {name: sum(getattr(demand, name) for demand in demands) for name in _NUMBERS}
    return {**sums, "queues": [asdict(demand) for demand in demands]}


def demand_table(demands: Sequence[QueueDemand]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("models", overflow="fold")
    table.add_column("dtype")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    for demand in demands:
        table.add_row(
            " and ".join(demand.models),
            demand.dtype,
            *(f"{getattr(demand, name):,}" for name in _NUMBERS),
        )
    return table


_NUMBERS = ("queued", "running", "workers", "wanted")
