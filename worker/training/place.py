"""Where a training runs, and how its rows are loaded. Does not change the weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.training.watcher import Watcher


@dataclass(frozen=True, kw_only=True)
class TrainPlace:
    device: str = "auto"
    checkpoints: Path | None = None  # folder; None: beside the output
    resume: bool = True  # from the last checkpoint, if there is one
    loader_processes: int = 0  # that prepare batches beside the training; 0: the training itself does
    watcher: "Watcher | None" = None  # that may end it; None: signals do
    attempt: str = ""  # a name that no other attempt at this output has, if there may be several at once

    @property
    def folder(self) -> Path:
        """Of the checkpoints, once it is known."""
        assert self.checkpoints is not None
        return self.checkpoints
