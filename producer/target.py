"""Errors about an argument that is a run id where a path is expected, or the other way round."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import UsageError
from fleet.target import is_place


def refuse_place(target: str) -> None:
    """Raises UsageError for a path or URI if a run id is expected. The message names the command that takes a path."""
    if not is_place(target):
        return
    if "://" not in target and not Path(target).expanduser().exists():
        raise UsageError(f"There is no folder {target}, and a run id has no slash. `producer runs` lists the run ids.")
    refuse_model(target)
    kind = "a URI" if "://" in target else "a folder" if Path(target).expanduser().is_dir() else "a file"
    raise UsageError(f"{target} is {kind}. To check it, run: producer verify {_as_argument(target)}")


def refuse_model(target: str) -> None:
    """Raises UsageError for the folder of a model, such as `worker train` writes, if the output of a run is expected."""
    if "://" not in target and (Path(target).expanduser() / "config.json").is_file():
        model = _as_argument(target)
        raise UsageError(f"{target} is a model, not a dataset. To use it: --model {model}")


@contextmanager
def no_folder_told(target: str) -> Iterator[None]:
    """Extend the error for an unknown run: there is no folder of that name either."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"There is no folder {target!r} here, and no such run: {error}") from error


def _as_argument(place: str) -> str:
    """Add a slash, so that the argument counts as a path even if the folder is removed."""
    return shlex.quote(place if "/" in place or place.startswith((".", "~")) else f"./{place}")
