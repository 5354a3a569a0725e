"""What a trained model says of its training, in `training.json`. It tells whose output a folder or a repository is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from fleet.training.progress import LossPoint, TrainProgress

MARK = "training.json"


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """`lines` are what `worker train` prints: name and value. `figures` are of the held-out rows."""

    training_id: str
    rows: int
    device: str
    seconds: float
    figures: Mapping[str, float]
    lines: tuple[tuple[str, str], ...]
    progress: TrainProgress = field(default_factory=TrainProgress)

    @property
    def losses(self) -> tuple[LossPoint, ...]:
        return self.progress.losses

    def to_json(self) -> bytes:
        return _MODEL.dump_json(self, indent=1)

    @staticmethod
    def from_json(content: bytes | str) -> "TrainedModel":
        """Raises pydantic's ValidationError for anything else."""
        return _MODEL.validate_json(content, strict=False)


_MODEL = TypeAdapter(TrainedModel)
