"""Where a training runs, and how its rows are loaded. Does not change the weights."""

from dataclasses import dataclass, replace
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

    def beside(self, output_uri: str, name: str) -> "TrainPlace":
        """With a folder for the checkpoints: beside the output, or here if that is elsewhere."""
        output = Path(name if "://" in output_uri else output_uri)
        folder = self.checkpoints or output.expanduser().with_name(f"{name}.checkpoints")
        return replace(self, checkpoints=folder.expanduser().absolute())
