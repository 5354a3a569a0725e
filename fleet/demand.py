"""What the open shards of all runs need: which models, in which precision, and how many shards wait for them.

Counted in the ledger. The length of a queue would be misleading: a running shard has no message there, and a message may be lost.
"""

import json
from dataclasses import dataclass, replace

from fleet.choices import Dtype
from fleet.ledger import Ledger
from fleet.model import Model, worker_queue
from fleet.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a worker loads. It then serves one queue."""

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
        """The settings with which a worker loads exactly this."""
        return {
            "SHARDSIFT_SCORER": self.models[0].scorer,
            "SHARDSIFT_MODEL": json.dumps([f"{model.name}@{model.revision}" for model in self.models]),
            "SHARDSIFT_MODEL_REVISION": "",
            "SHARDSIFT_DTYPE": self.dtype,
        }

    def __str__(self) -> str:
        names = " and ".join(model.name for model in self.models)
        return names if self.dtype == "auto" else f"{names} in {self.dtype}"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The open shards that workers with this load can take: `queued` has no worker yet, `running` has one."""

    load: Load
    queued: int
    running: int

    @property
    def queue(self) -> str:
        return self.load.queue


def open_demands(ledger: Ledger) -> list[Demand]:
    """One demand for each queue with open shards, in the order of the oldest run. Cancelled runs need nothing."""
    demands: dict[str, Demand] = {}
    for run in ledger.open_runs():
        load = Load.of(run.spec)
        before = demands.get(load.queue, Demand(load=load, queued=0, running=0))
        demands[load.queue] = replace(before, queued=before.queued + run.queued, running=before.running + run.running)
    return list(demands.values())
