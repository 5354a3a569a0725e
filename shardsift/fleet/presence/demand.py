"""Count the open shards of all runs by the models and the precision that they need.

Counts in the ledger, because the length of a queue misleads: it lacks running shards, and messages may be lost.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.records import OpenRun
from shardsift.fleet.run.choices import Dtype
from shardsift.fleet.run.model import Model, worker_queue
from shardsift.fleet.run.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Load:
    """The models and the precision that a worker loads. They determine the queue that it serves."""

    models: tuple[Model, ...]
    dtype: Dtype

    @classmethod
    def of(cls, spec: RunSpec) -> "Load":
        return cls(models=spec.served_by, dtype=spec.scorings[0].dtype)

    @property
    def queue(self) -> str:
        return worker_queue(model.queue(self.dtype) for model in self.models)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make a worker load exactly these models."""
        return {
            "SHARDSIFT_SCORER": self.models[0].scorer,
            "SHARDSIFT_MODEL": json.dumps([f"{model.name}@{model.revision}" for model in self.models]),
            "SHARDSIFT_DTYPE": self.dtype,
        }

    def __str__(self) -> str:
        names = " and ".join(model.name for model in self.models)
        return names if self.dtype == "auto" else f"{names} in {self.dtype}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The loads that the user allows on a machine: a kind of scorer, models, a precision. The defaults allow any.

    If `any_revision`, a Hub model matches at any commit.
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
        """The models to load at the start, before any run needs them. None if the user named no model."""
        return Load(models=self.models, dtype=self.dtype or "auto") if self.models else None

    def _keys(self, models: Iterable[Model]) -> set[tuple[str, str, str]]:
        return {
            (model.scorer, model.name, "" if self.any_revision and not model.is_folder else model.revision)
            for model in models
        }


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The number of open shards that need `load`. `queued` shards have no worker yet; `running` shards have one.

    A run with a limit of workers adds at most one `queued` shard for each worker that it may still get.
    """

    load: Load
    queued: int
    running: int

    @property
    def queue(self) -> str:
        return self.load.queue


def format_to_follow(ledger: Ledger, queue: str) -> str | None:
    """Return the number format in which a worker of this queue should score. None if any format will do.

    It is the format of the oldest run that needs workers and has fixed its format.
    """
    formats = (run.number_format for run in ledger.open_runs() if run.spec.queue == queue and run.queued)
    return next(filter(None, formats), None)


def open_demands(ledger: Ledger) -> list[Demand]:
    """Return the demand for each queue with open shards, oldest run first. Cancelled and paused runs do not count."""
    runs: dict[str, list[OpenRun]] = {}
    for run in ledger.open_runs():
        runs.setdefault(run.spec.queue, []).append(run)
    return [
        Demand(
            load=Load.of(of_queue[0].spec),
            queued=sum(run.queued for run in of_queue),
            running=sum(run.running for run in of_queue),
        )
        for of_queue in runs.values()
    ]
