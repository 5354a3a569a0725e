"""How a worker's parent and child speak to each other. Apart from `child.py`, and light, since the parent imports it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter

from fleet.model import Model

STOP_SIGNAL = signal.SIGUSR2  # "stop at the next batch"; a second one, "at once". SIGTERM is Celery's own
FOLDER = "SHARDSIFT_WORKER_FOLDER"  # names a folder of the parent's, in which its children leave word
PARENT = "SHARDSIFT_WORKER_PID"  # the parent's
EXIT_STOPPED = 0
EXIT_DEVICE_FAULT = 71  # sysexits.h: EX_OSERR
EXIT_NO_MODEL = 70  # sysexits.h: EX_SOFTWARE
_MODEL = "SHARDSIFT_WORKER_MODEL"
_MODEL_JSON = TypeAdapter(Model)
_FAILURE = "failure"
_CRASH = "crash-"
_LOADED = "loaded-"


def hand_down(model: Model) -> None:
    """Say to every child, whenever it starts, which model this worker serves."""
    os.environ[_MODEL] = _MODEL_JSON.dump_json(model).decode()


def handed_down() -> Model:
    """The model that the parent of this child serves."""
    return _MODEL_JSON.validate_json(os.environ[_MODEL])


def owner_name(hostname: str, parent_pid: int) -> str:
    """Who a claim belongs to: the same for every child of this worker, and for no other worker."""
    return f"{hostname}/{parent_pid}"


def leave_loaded(device: str) -> None:
    """Say that this child has its model loaded on a device of this kind, such as `cuda`."""
    partial = Path(os.environ[FOLDER], f".{_LOADED}{os.getpid()}")
    partial.write_text(device)
    partial.rename(partial.with_name(partial.name.removeprefix(".")))


def found_loaded(folder: Path, child: int) -> str | None:
    """The kind of device that this child has its model loaded on, None while it loads."""
    try:
        return (folder / f"{_LOADED}{child}").read_text()
    except FileNotFoundError:
        return None


def leave_failure(reason: str) -> None:
    """Say why this child cannot serve at all."""
    Path(os.environ[FOLDER], _FAILURE).write_text(reason)


def found_failure(folder: Path) -> str | None:
    file = folder / _FAILURE
    return file.read_text() if file.exists() else None


def crash_report_path() -> Path:
    """Where this child writes the traces of its threads as it dies."""
    return Path(os.environ[FOLDER], f"{_CRASH}{os.getpid()}")


def take_crash_reports(folder: Path) -> str:
    """What dead children of this process wrote as they died; they are told once."""
    return "\n".join(_taken(folder))


def _taken(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob(f"{_CRASH}*")):
        if not Path("/proc", file.name.removeprefix(_CRASH)).exists():
            if text := file.read_text(errors="replace").strip():
                yield text
            file.unlink(missing_ok=True)
