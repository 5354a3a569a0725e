"""What the argument of `producer status` or `producer verify` names: a run, or the place of an output."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import UsageError


def is_place(target: str) -> bool:
    """Whether this is a path or URI. A run id has no slash and does not begin with a dot or a tilde."""
    return "/" in target or target.startswith((".", "~")) or Path(target).exists()


def refuse_place(target: str) -> None:
    """Raises UsageError for a path or URI where a run id is wanted. Names the command that takes it."""
    if not is_place(target):
        return
    if "://" not in target and not Path(target).expanduser().exists():
        raise UsageError(f"There is no folder {target}, and a run id has no slash. `producer runs` lists the run ids.")
    kind = "a URI" if "://" in target else "a folder" if Path(target).expanduser().is_dir() else "a file"
    raise UsageError(f"{target} is {kind}; to look at it: producer verify {_as_argument(target)}")


@contextmanager
def no_folder_told(target: str) -> Iterator[None]:
    """Add to the error about an unknown run that there is no such folder either."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error} There is no folder {target!r} here either.") from error


def _as_argument(place: str) -> str:
    """With a slash, so that it is read as a place also if it is moved or removed meanwhile."""
    return shlex.quote(place if "/" in place or place.startswith((".", "~")) else f"./{place}")
