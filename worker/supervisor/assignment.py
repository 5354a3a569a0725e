"""Decide what each worker of a machine serves. Pure functions of what the fleet needs and what it has."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet.choices import Dtype
from fleet.demand import Demand, Load
from fleet.model import Model
from fleet.workers import WorkerState


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the user lets a machine serve: a kind of scorer, these models together, a precision. The defaults allow anything.

    With `any_revision`, a run may have pinned another commit of a model on the Hub.
    """

    scorer: str | None = None
    models: tuple[Model, ...] = ()
    any_revision: bool = False
    dtype: Dtype | None = None

    def admits(self, load: Load) -> bool:
        if self.dtype is not None and load.dtype != self.dtype:
            return False
        if self.scorer is not None and any(model.scorer != self.scorer for model in load.models):
            return False
        return not self.models or self._keys(load.models) == self._keys(self.models)

    @property
    def preload(self) -> Load | None:
        """What to load while no run needs anything. None if the user named no model."""
        return Load(models=self.models, dtype=self.dtype or "auto") if self.models else None

    def _keys(self, models: Iterable[Model]) -> set[tuple[str, str, str]]:
        return {
            (model.scorer, model.name, "" if self.any_revision and not model.is_folder else model.revision)
            for model in models
        }


def free_workers(workers: Iterable[WorkerState]) -> Counter[str]:
    """The workers of each queue that have no shard: they load their model, or wait."""
    return Counter(worker.queue for worker in workers if worker.activity in ("loading", "ready"))


def next_load(demands: Iterable[Demand], free: Counter[str], avoids: Callable[[Load], bool]) -> Load | None:
    """What one more worker should serve: the queue that lacks the most workers, of equal ones the oldest. None: nothing."""
    lacking = [(demand.queued - free[demand.queue], demand.load) for demand in demands if not avoids(demand.load)]
    most, load = max(lacking, key=lambda pair: pair[0], default=(0, None))
    return load if most > 0 else None
