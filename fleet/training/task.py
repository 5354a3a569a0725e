"""A training as a task of the fleet: what is trained, and where another worker finds its checkpoints.

In the ledger it is an entry with one shard, and with an id like that of a run. Knows no torch.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import TypeAdapter

from fleet.model import UNKNOWN_FIELDS_REFUSED, slug
from fleet.training.spec import TrainSpec

TRAIN_QUEUE = "train"
WHOLE = "training"  # the name of the only shard
_ID = re.compile(r"train-[a-z0-9-]{1,32}\.[0-9a-f]{12}")  # a run's id has two dots


@dataclass(frozen=True, kw_only=True)
class FleetTraining:
    """`spec` decides the weights and names the training. The rest is where and how a worker trains, and may change.

    `checkpoints_uri` is a folder that all machines reach, or the URI of a place to which each checkpoint is copied. Without one,
    checkpoints stay on the machine that trains.
    """

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    spec: TrainSpec
    checkpoints_uri: str | None = None
    loader_processes: int = 0

    @property
    def run_id(self) -> str:
        return training_id(self.spec)

    @property
    def queue(self) -> str:
        """One for all trainings: a worker loads the base model of each when it begins it."""
        return TRAIN_QUEUE

    def to_json(self) -> bytes:
        return _TRAINING.dump_json(self)

    @staticmethod
    def from_json(data: bytes | str) -> "FleetTraining":
        """The training written by `to_json`. Raises pydantic's ValidationError on anything else."""
        return _TRAINING.validate_json(data, strict=False)


def training_id(spec: TrainSpec) -> str:
    """`train-`, the name of the output, and 12 hex digits of the digest of all fields that do not have their default."""
    digest = hashlib.sha256(_SPEC.dump_json(spec, exclude_defaults=True)).hexdigest()[:12]
    return f"train-{slug(PurePosixPath(spec.output_uri).name)}.{digest}"


def is_training_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


_TRAINING, _SPEC = TypeAdapter(FleetTraining), TypeAdapter(TrainSpec)
