"""Make scratch folders for building and merging output files, and remove those that killed processes left behind.

Each folder has a lock, which the kernel releases when its process ends, so a folder with a free lock is unused.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardsift.fleet.errors import TransientError

_PREFIX = "shardsift-scratch-"
_LOCK = "lock"


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder in `parent`, or in the temporary folder, for the length of a block.

    Raises TransientError if the folder cannot be made.
    """
    parent = parent or Path(tempfile.gettempdir())
    try:
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise TransientError(
            f"The scratch folder {parent} cannot be used ({error.strerror}): name another with SHARDSIFT_SCRATCH_DIR.",
            of_machine=True,
        ) from error
    with made as folder, Path(folder, "new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(folder, "new").rename(Path(folder, _LOCK))  # only now, because a free lock means an unused folder
        yield Path(folder)


def remove_abandoned(parent: Path | None) -> None:
    for lock in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_LOCK}"):
        if _is_free(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, already removed, or owned by another user
        return False
    return True
