"""Decide what each worker of a machine serves. Pure functions of what the fleet needs and what it has."""

from collections import Counter
from collections.abc import Callable, Iterable

from fleet.demand import Demand, Load
from fleet.workers import WorkerState


def free_workers(workers: Iterable[WorkerState]) -> Counter[str]:
    """The workers of each queue that have no shard: they load their model, or wait."""
    return Counter(worker.queue for worker in workers if worker.activity in ("loading", "ready"))


def next_load(demands: Iterable[Demand], free: Counter[str], avoids: Callable[[Load], bool]) -> Load | None:
    """What one more worker should serve: the queue that lacks the most workers, of equal ones the oldest. None: nothing."""
    lacking = [(demand.queued - free[demand.queue], demand.load) for demand in demands if not avoids(demand.load)]
    most, load = max(lacking, key=lambda pair: pair[0], default=(0, None))
    return load if most > 0 else None
