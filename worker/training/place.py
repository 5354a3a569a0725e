"""Where a training runs, and how its rows are loaded. Does not change the weights."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TrainPlace:
    device: str = "auto"
    checkpoints: Path | None = None  # folder; None: beside the output
    resume: bool = True  # from the last checkpoint, if there is one
    loader_processes: int = 0  # that prepare batches beside the training; 0: the training itself does

    @property
    def folder(self) -> Path:
        """Of the checkpoints, once it is known."""
        assert self.checkpoints is not None
        return self.checkpoints
