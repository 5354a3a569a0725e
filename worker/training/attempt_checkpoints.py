"""Where an attempt at a training of the fleet keeps its checkpoints: in a folder that all machines reach, or on its own machine.

On its own machine they are in the scratch folder. They stay when the attempt has ended, so that the next one there can go on from
them. With copies elsewhere, another machine can too.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import TransientError
from fleet.training.checkpoints import is_uri
from worker.training.attempt_copies import AttemptCopies
from worker.training.attempt_folder import drop_attempts, is_taken_over, take_over
from worker.training.attempt_name import AttemptName


@dataclass(frozen=True, kw_only=True)
class AttemptCheckpoints:
    """`root` holds the folders of attempts at this training."""

    attempt: AttemptName
    root: Path
    is_shared: bool
    copies: AttemptCopies | None = None

    def take_over(self) -> Path:
        """The folder for this attempt, with the checkpoints of the one before if they are here. May run twice."""
        return take_over(self.root, self.attempt)

    @property
    def folder(self) -> Path:
        return self.root / str(self.attempt)

    def withdraw(self, *, is_done: bool) -> None:
        """The lease is lost: remove what no later attempt goes on from. Copies that cannot be removed stay.

        A later attempt may have to take over the folder yet, or there is none, because the training has failed.
        """
        if self.is_shared and (is_done or is_taken_over(self.root, self.attempt)):
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.copies and is_done:
            self.copies.drop()
        elif self.copies:
            self.copies.withdraw()

    def drop(self) -> None:
        """The training is done: remove the checkpoints of all attempts. Raises ShardError or TransientError."""
        if self.is_shared:
            drop_attempts(self.root, self.attempt.training)
        else:
            shutil.rmtree(self.root, ignore_errors=True)
        if self.copies:
            self.copies.drop()


def attempt_checkpoints(uri: str | None, attempt: AttemptName, scratch: Path | None) -> AttemptCheckpoints:
    """`uri` is a shared folder, a place to copy to, or None if the checkpoints stay on the machine.

    Raises UsageError for a URI that cannot be used, TransientError for a scratch folder that cannot.
    """
    if uri is not None and not is_uri(uri):
        return AttemptCheckpoints(attempt=attempt, root=Path(uri), is_shared=True)
    return AttemptCheckpoints(
        attempt=attempt,
        root=_own_folder(scratch) / attempt.training,
        is_shared=False,
        copies=None if uri is None else AttemptCopies(uri, attempt),
    )


def drop_local(scratch: Path | None, is_needed: Callable[[str, float], bool]) -> None:
    """Delete what is left on this machine of trainings that need it no more: another machine may have finished them.

    `is_needed` is asked with the digits of a training's id, and the seconds since anything of it was written here.
    """
    for folder in _place(scratch).glob("*"):
        if not is_needed(folder.name, time.time() - _written_at(folder)):
            shutil.rmtree(folder, ignore_errors=True)


def _written_at(folder: Path) -> float:
    """The newest time of its files. Another worker may change them meanwhile."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    return newest


def _place(scratch: Path | None) -> Path:
    return (scratch or Path(tempfile.gettempdir())) / f"shardsift-trainings-{os.getuid()}"


def _own_folder(scratch: Path | None) -> Path:
    """Of this user alone: a checkpoint that another user could write might run code when it is loaded."""
    folder = _place(scratch)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise TransientError(f"The scratch folder {folder} cannot be used: {error.strerror}.") from error
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise TransientError(f"{folder} belongs to another user, or others can write to it. Set SHARDSIFT_SCRATCH_DIR.")
    return folder
