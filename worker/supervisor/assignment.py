"""Decide what each worker of a machine serves. Pure functions of what the fleet needs and what it has."""

from collections import Counter
from collections.abc import Callable, Iterable

from fleet.demand import Demand, Load
from fleet.workers import WorkerState


def free_workers(workers: Iterable[WorkerState]) -> Counter[str]:
    """The workers of each queue that have no shard: they load their model, or wait."""
    return Counter(worker.queue for worker in workers if worker.activity in ("loading", "ready"))


def next_load(demands: Iterable[Demand], free: Counter[str], avoids: Callable[[Load], bool]) -> Load | None:
    """What one more worker should serve, of the queues that lack workers. None: nothing.

    That is the queue of the highest priority, of equal ones the one that lacks the most workers, then the oldest.
    """
    lacking = [
        (demand.priority, demand.queued - free[demand.queue], demand.load)
        for demand in demands
        if demand.queued > free[demand.queue] and not avoids(demand.load)
    ]
    _, _, load = max(lacking, key=lambda one: one[:2], default=(0, 0, None))
    return load
