"""The checkpoints of a training that several workers may work on, one after another, in one folder that all of them reach.

Each attempt writes to a folder of its own. The next one renames that of the attempt before, so that a worker that lost its
lease and comes back writes where nobody looks.
"""

import hashlib
import re
import shutil
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"attempt-[0-9a-f]{8}-\d{8}-[0-9a-f]+")


def take_over(root: Path, *, data_identity: str, token: str) -> Path:
    """The folder for the attempt with this fencing token, with the checkpoints of the one before, if the data is the same.

    May run twice.
    """
    own = own_folder(root, data_identity=data_identity, token=token)
    if own.exists():
        return own
    family = _family(data_identity)
    earlier = sorted(folder for folder in _attempts(root) if folder.name.startswith(family))
    root.mkdir(parents=True, exist_ok=True)
    if earlier:
        earlier[-1].rename(own)
    for older in earlier[:-1]:
        shutil.rmtree(older, ignore_errors=True)
    return own


def own_folder(root: Path, *, data_identity: str, token: str) -> Path:
    number, _, nonce = token.partition("-")
    return root / f"{_family(data_identity)}{int(number):08d}-{nonce}"


def drop_attempts(root: Path) -> None:
    """Delete the folders of all attempts. Other files stay."""
    for folder in _attempts(root):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # not empty, or gone
        root.rmdir()


def _family(data_identity: str) -> str:
    """How the folders of all attempts begin that train on the same data."""
    return f"attempt-{hashlib.sha256(data_identity.encode()).hexdigest()[:8]}-"


def _attempts(root: Path) -> list[Path]:
    return [folder for folder in root.glob("attempt-*") if _NAME.fullmatch(folder.name)]
