"""Copies of the checkpoints of a training that several workers may work on, one after another, at a place that all reach.

<uri>/attempt-…/    what `worker/training/checkpoint_copies.py` writes, for each attempt

A bucket cannot rename, so an attempt cannot take over the copies of the one before. It reads the newest ones of any attempt,
writes below its own name only, and removes those of earlier attempts when it has newer ones itself. So an attempt that has lost
its lease and comes back changes nothing that a later attempt has written. What it adds itself may be used: it is a checkpoint
of the same training, whole or not listed.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleet.errors import ShardError, ShardsiftError, TransientError, UsageError
from fleet.storage.errors import translated
from fleet.storage.files import Files
from worker.training.attempt_name import AttemptName
from worker.training.checkpoint_copies import CheckpointCopies
from worker.training.checkpoints import checkpoints_in, step_of
from worker.training.identity import Description

_LOOKS = 5  # at what there is: an attempt may remove copies while they are read


class AttemptCopies:
    """Each method may run twice and stop anywhere."""

    def __init__(self, root_uri: str, attempt: AttemptName) -> None:
        self._root, self._attempt = root_uri.rstrip("/"), attempt
        self._own = self._of(attempt)
        self.uri = self._own.uri
        self._folders = Files(self._root)

    def claim(self, wanted: Description) -> None:
        """Raises UsageError if the copies cannot be written."""
        self._wanted = wanted
        self._own.claim(wanted)

    def fetch(self, folder: Path) -> None:
        """Bring the newest checkpoints of all attempts to this folder, if they are newer than those that it holds.

        Raises UsageError if they cannot be read, or are of another base model.
        """
        for _ in range(_LOOKS):
            newest = self._newest()
            if newest is None or newest.last_step <= max(map(step_of, checkpoints_in(folder)), default=0):
                return
            newest.check(self._wanted)
            newest.fetch(folder)

    def push(self, folder: Path, on_file: Callable[[], None] = lambda: None) -> None:
        """Make the own copies those that the folder holds, and remove older ones of earlier attempts.

        Calls `on_file` after each file. Raises ShardError or TransientError.
        """
        self._own.push(folder, on_file)
        with translated(f"Removing older checkpoints from {self._root}"):
            last_step = self._own.last_step
            for attempt in self._attempts():
                if attempt.number < self._attempt.number and self._of(attempt).last_step <= last_step:
                    self._folders.remove(str(attempt))

    def forget(self) -> None:
        self._own.forget()

    def withdraw(self) -> None:
        """After the lease is lost: remove the own copies, unless a later attempt may have to go on from them."""
        with suppress(ShardsiftError), translated(f"Removing checkpoints from {self._root}"):
            later = [attempt for attempt in self._attempts() if attempt.number > self._attempt.number]
            if any(self._of(attempt).last_step >= self._own.last_step for attempt in later):
                self._folders.remove(str(self._attempt))

    def drop(self) -> None:
        """The training is done: remove the copies of all attempts, on any data. Raises ShardError or TransientError."""
        with translated(f"Removing the checkpoints at {self._root}"):
            for name in self._folders.names_in(""):
                found = AttemptName.read(name)
                if found and found.training == self._attempt.training:
                    self._folders.remove(name)

    def _newest(self) -> CheckpointCopies | None:
        try:
            with translated(f"Reading the checkpoints at {self._root}"):
                every = [self._of(attempt) for attempt in self._attempts()]
                return max(
                    (copies for copies in every if copies.last_step), key=lambda one: one.last_step, default=None
                )
        except (ShardError, TransientError) as error:
            raise UsageError(str(error)) from error

    def _attempts(self) -> list[AttemptName]:
        """At the same training on the same data, the earliest first, with this one."""
        names = (AttemptName.read(name) for name in self._folders.names_in(""))
        return sorted((name for name in names if name and self._attempt.may_use(name)), key=lambda name: name.number)

    def _of(self, attempt: AttemptName) -> CheckpointCopies:
        return CheckpointCopies(f"{self._root}/{attempt}")
