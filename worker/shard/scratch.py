"""The folder in which a worker builds output files, and the removal of those that killed workers left behind.

Each holds a lock that the kernel frees with its process: whoever can take it knows that the folder is nobody's.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "shardsift-scratch-"
_LOCK = "lock"


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A folder that is gone after the block, in `parent` or the system's temporary folder."""
    parent = parent or Path(tempfile.gettempdir())
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder,
        Path(folder, _LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)


def remove_abandoned(parent: Path | None) -> int:
    """Remove the folders of processes that are no more; returns how many."""
    removed = 0
    for lock in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_LOCK}"):
        if _is_free(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)
            removed += 1
    return removed


def _is_free(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, gone meanwhile, or another user's
        return False
    return True
