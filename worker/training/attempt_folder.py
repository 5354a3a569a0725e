"""The checkpoints of a training that several workers may work on, one after another, in a folder that these workers reach.

Each attempt writes to a folder of its own. The next one renames that of the attempt before, so that a worker that lost its
lease and comes back writes where nobody looks.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from worker.training.attempt_name import AttemptName


def take_over(root: Path, attempt: AttemptName) -> Path:
    """The folder for this attempt, with the checkpoints of the one before, if there was one on the same data. May run twice."""
    own = root / str(attempt)
    if own.exists():
        return own
    found = [(name.number, folder) for name, folder in _attempts(root) if attempt.may_use(name)]
    earlier = [folder for _, folder in sorted(found)]
    root.mkdir(parents=True, exist_ok=True)
    if earlier:
        earlier[-1].rename(own)
    for older in earlier[:-1]:
        shutil.rmtree(older, ignore_errors=True)
    return own


def is_taken_over(root: Path, attempt: AttemptName) -> bool:
    """Whether another attempt has taken over the checkpoints of this one. What its folder holds now, it has written since."""
    return any(attempt.may_use(name) and name != attempt for name, _ in _attempts(root))


def drop_attempts(root: Path, training: str) -> None:
    """Delete the folders of all attempts at this training, on any data. Other files stay."""
    for name, folder in _attempts(root):
        if name.training == training:
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # not empty, or gone
        root.rmdir()


def _attempts(root: Path) -> list[tuple[AttemptName, Path]]:
    return [(name, folder) for folder in root.glob("attempt-*") if (name := AttemptName.read(folder.name))]
