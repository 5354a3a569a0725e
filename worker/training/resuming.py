"""Where a training of all weights begins, and what is kept of it: checkpoints on this machine, and their copies elsewhere."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback

from fleet.errors import ShardsiftError
from worker.training.checkpoints import Checkpoint, claim_folder, forget, last_checkpoint
from worker.training.identity import Description
from worker.training.place import TrainPlace
from worker.training.processes import is_first_process


def checkpoint_to_resume(place: TrainPlace, description: Description, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint of this training, from another machine if that has a newer one. Several processes call it in turn.

    Raises UsageError if the checkpoints are of another training.
    """
    if is_first_process():
        _prepare(place, description)
    checkpoint = last_checkpoint(place.folder)
    if checkpoint and is_first_process():
        tell(f"Going on after step {checkpoint.step:,}, from {checkpoint.folder}")
        if place.watcher:
            place.watcher.on_checkpoint(checkpoint.step)
    return checkpoint


def _prepare(place: TrainPlace, description: Description) -> None:
    copies = place.copies
    if not place.resume:
        forget(place.folder)
        if copies:
            copies.forget()
    claim_folder(place.folder, description)
    if copies:
        copies.claim(description)
        last_checkpoint(place.folder)  # deletes one that is not whole
        copies.fetch(place.folder)


class CopyEachCheckpoint(TrainerCallback):
    """Training waits for the copy. It goes on if that fails, and the next checkpoint tries again."""

    def __init__(self, place: TrainPlace, tell: Callable[[str], None]) -> None:
        self._place = place
        self._tell = tell
        self.latest = str(place.folder)  # where the newest checkpoint is

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:
            dist.barrier()  # each process writes its random state into the checkpoint
        if state.is_world_process_zero and self._is_copied() and self._place.watcher:
            self._place.watcher.on_checkpoint(state.global_step)

    def _is_copied(self) -> bool:
        """True also if no copies are wanted."""
        if self._place.copies is None:
            return True
        try:
            self._place.copies.push(self._place.folder, self._on_file)
            self.latest = self._place.copies.uri
        except ShardsiftError as error:
            self.latest = str(self._place.folder)
            self._tell(f"{error} The checkpoint is in {self.latest} only.")
            return False
        return True

    def _on_file(self) -> None:
        """A watchdog waits for a large checkpoint, unless one file of it takes too long."""
        if self._place.watcher:
            self._place.watcher.on_sign_of_life()
