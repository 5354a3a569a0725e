"""Copies of a training's checkpoints at a place that other machines reach, such as a bucket.

<uri>/training.json        whose they are
<uri>/checkpoint-8/…       the files, as the Trainer wrote them
<uri>/checkpoint-8.json    their digests; written last and removed first, so that a copy without it is not whole
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fleet.errors import ShardError, TransientError, UsageError
from fleet.shard import is_safe_name
from fleet.storage.errors import translated
from fleet.storage.files import Files
from worker.training.checkpoints import DESCRIPTION, check_equal, checkpoints_in, is_checkpoint, step_of
from worker.training.identity import Description

_LISTING = ".json"
_PARTIAL = ".partial"


class Copies(Protocol):
    """What a training does with the copies of its checkpoints. Their `uri` is for messages."""

    uri: str

    def claim(self, wanted: Description) -> None: ...

    def fetch(self, folder: Path) -> None: ...

    def push(self, folder: Path, on_file: Callable[[], None]) -> None: ...

    def forget(self) -> None: ...


class CheckpointCopies:
    """Each method may run twice and stop anywhere."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._files = Files(self.uri)

    def claim(self, wanted: Description) -> None:
        """Take the place for this training, or check that it is of the same one. Raises UsageError if it is not."""
        try:
            with translated(f"Preparing the checkpoints at {self.uri}"):
                found = self._files.content(DESCRIPTION)
                if found is not None:
                    check_equal(json.loads(found), wanted, self.uri)
                    return
                if any(not name.endswith(_PARTIAL) for name in self._files.names_in("")):
                    raise UsageError(f"{self.uri} holds other files. Name another place with --checkpoints.")
                self._write(DESCRIPTION, json.dumps(wanted, indent=1))
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} Choose --checkpoints that can be written.") from error

    def check(self, wanted: Description) -> None:
        """Raises UsageError if they are of another training, or cannot be read."""
        try:
            with translated(f"Reading the checkpoints at {self.uri}"):
                found = self._files.content(DESCRIPTION)
        except (ShardError, TransientError) as error:
            raise UsageError(str(error)) from error
        if found is not None:  # an attempt may have removed them meanwhile
            check_equal(json.loads(found), wanted, self.uri)

    @property
    def last_step(self) -> int:
        """Of the newest whole copy. 0 if there is none. Raises fsspec's errors."""
        return max(map(step_of, self._whole()), default=0)

    def fetch(self, folder: Path) -> None:
        """Bring the checkpoints to this folder, if there is a newer one than it holds. Raises UsageError if that fails."""
        newest_here = max(map(step_of, checkpoints_in(folder)), default=0)
        try:
            with translated(f"Reading the checkpoints at {self.uri}"):
                there = self._whole()
                if not there or step_of(there[-1]) <= newest_here:
                    return
                for name in there:  # in the order of their steps, since the Trainer deletes the oldest by time
                    self._fetch(name, folder)
        except (ShardError, TransientError) as error:
            raise UsageError(str(error)) from error

    def push(self, folder: Path, on_file: Callable[[], None] = lambda: None) -> None:
        """Make the copies those that the folder holds. Calls `on_file` after each file. Raises ShardError or TransientError."""
        here = {checkpoint.name: checkpoint for checkpoint in checkpoints_in(folder)}
        with translated(f"Copying a checkpoint to {self.uri}"):
            there = set(self._whole())
            for name in sorted(here.keys() - there, key=step_of):  # the best before the newest, which refers to it
                self._put(here[name], on_file)
            for name in self._begun() - here.keys():
                self._remove(name)
            self._remove_partial()

    def forget(self) -> None:
        """Delete the copies. Other files at this place stay. Raises ShardError or TransientError."""
        with translated(f"Removing the checkpoints at {self.uri}"):
            for name in self._begun():
                self._remove(name)
            self._remove_partial()
            self._files.remove(DESCRIPTION)

    def _whole(self) -> list[str]:
        """By their steps."""
        names = {name.removesuffix(_LISTING) for name in self._files.names_in("") if name.endswith(_LISTING)}
        return sorted(filter(is_checkpoint, names), key=step_of)

    def _begun(self) -> set[str]:
        return set(filter(is_checkpoint, (name.removesuffix(_LISTING) for name in self._files.names_in(""))))

    def _put(self, checkpoint: Path, on_file: Callable[[], None]) -> None:
        digests = {}
        for file in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
            path = file.relative_to(checkpoint).as_posix()
            self._files.put(file, f"{checkpoint.name}/{path}")
            digests[path] = _digest(file)
            on_file()
        self._write(f"{checkpoint.name}{_LISTING}", json.dumps(digests, indent=1))

    def _fetch(self, name: str, folder: Path) -> None:
        """A copy that has not the files of its listing is removed, so that it is made again.

        So is one whose listing names a file outside of the checkpoint.
        """
        listing = self._files.content(f"{name}{_LISTING}")
        if listing is None or (folder / name).exists():
            return
        partial = folder / f".{name}{_PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)
        files = _listed(listing)
        if all(is_safe_name(path) for path, _ in files) and all(
            [self._fetch_file(f"{name}/{path}", partial / path) == digest for path, digest in files]
        ):
            partial.replace(folder / name)
        else:
            shutil.rmtree(partial, ignore_errors=True)
            self._remove(name)

    def _fetch_file(self, path: str, copy: Path) -> str | None:
        """Its digest. None if there is no such file."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._files.open(path) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except FileNotFoundError:
            return None
        return _digest(copy)

    def _remove(self, name: str) -> None:
        self._files.remove(f"{name}{_LISTING}")
        self._files.remove(name)

    def _remove_partial(self) -> None:
        """What a process left that ended while it wrote."""
        for name in self._files.names_in(""):
            if name.endswith(_PARTIAL):
                self._files.remove(name)

    def _write(self, path: str, content: str) -> None:
        self._files.write(path, content.encode(), aside=f".{path}{_PARTIAL}")


def _listed(listing: bytes) -> list[tuple[str, str]]:
    """Path and digest of each file."""
    return list(json.loads(listing).items())


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
