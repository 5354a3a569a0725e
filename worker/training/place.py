"""Where a training runs, and how its rows are loaded. Does not change the weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import ShardsiftError
from fleet.training.checkpoints import check_copied_to, is_uri
from worker.training.checkpoint_copies import CheckpointCopies, Copies
from worker.training.checkpoints import forget

if TYPE_CHECKING:
    from worker.training.watcher import Watcher


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices of this machine that a training of all weights may share, each with a process of its own."""

    count: int = 1
    scratch_dir: Path | None = None  # where the processes meet; None: the system's temporary folder
    on_lost_rank: Callable[[str], None] | None = None  # called in a thread if one has died; the training cannot go on


@dataclass(frozen=True, kw_only=True)
class TrainPlace:
    device: str = "auto"
    devices: Devices = Devices()
    checkpoints: Path | None = None  # folder; None: beside the output
    copies: Copies | None = None  # of each checkpoint, at a place that other machines reach
    resume: bool = True  # from the last checkpoint, if there is one
    loader_processes: int = 0  # that prepare batches beside the training; 0: the training itself does
    watcher: "Watcher | None" = None  # that may end it; None: signals do
    reading: Callable[[], AbstractContextManager[None]] = (
        nullcontext  # entered to read the rows; may raise if they change
    )
    attempt: str = ""  # a name that no other attempt at this output has, if there may be several at once

    @property
    def folder(self) -> Path:
        """Of the checkpoints, once it is known."""
        assert self.checkpoints is not None
        return self.checkpoints

    def with_checkpoints(self, given: str | None) -> "TrainPlace":
        """What --checkpoints says: a folder of this machine, or the URI of a place to copy them to. Raises UsageError."""
        if given is None:
            return self
        if not is_uri(given):
            return replace(self, checkpoints=Path(given))
        check_copied_to(given)
        return replace(self, copies=CheckpointCopies(given))

    def forget_checkpoints(self, tell: Callable[[str], None]) -> None:
        """Delete those of a finished training. Copies that cannot be deleted stay."""
        forget(self.folder)
        if self.copies:
            try:
                self.copies.forget()
            except ShardsiftError as error:
                tell(f"{error} They are not needed any more.")

    def of_other_rank(self, watcher: "Watcher") -> "TrainPlace":
        """That of a process which helps with a training here. It can be pickled."""
        return TrainPlace(
            device=self.device, checkpoints=self.folder, loader_processes=self.loader_processes, watcher=watcher
        )

    def beside(self, output_uri: str, name: str) -> "TrainPlace":
        """With a folder for the checkpoints: beside the output, or here if that is elsewhere."""
        output = Path(name if "://" in output_uri else output_uri)
        folder = self.checkpoints or output.expanduser().with_name(f"{name}.checkpoints")
        return replace(self, checkpoints=folder.expanduser().absolute())
