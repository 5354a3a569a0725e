"""Signals, environment variables and files between a worker's parent and child. Light, because the parent imports it."""

import logging
import os
import signal
from pathlib import Path

from pydantic import TypeAdapter

from shardsift.fleet.process.logs import write_last_line
from shardsift.fleet.run.model import Model

STOP_SIGNAL = signal.SIGUSR2  # first: stop at the next batch; second: exit at once. SIGTERM is used by Celery
FOLDER = "SHARDSIFT_WORKER_FOLDER"  # environment variable: folder in which children leave files for the parent
PARENT = "SHARDSIFT_WORKER_PID"  # environment variable: process id of the parent
READY = "SHARDSIFT_WORKER_READY"  # environment variable: file that a worker creates when its model is loaded
REASON = "SHARDSIFT_WORKER_REASON"  # environment variable: file for the supervisor, with the reason why a worker ends
_MODELS = "SHARDSIFT_WORKER_MODELS"
_MODELS_JSON = TypeAdapter(tuple[Model, ...])
_FAILURE = "failure"
_CRASH = "crash-"
_LOADED = "loaded-"
_HELD = "held-"
logger = logging.getLogger(__name__)
_HELD_JSON = TypeAdapter(list[tuple[str, str]])
Held = list[tuple[str, str]]  # run and shard, in the order in which they were begun


def hand_down(models: tuple[Model, ...]) -> None:
    """Pass the models that this worker serves to all children, through the environment."""
    os.environ[_MODELS] = _MODELS_JSON.dump_json(models).decode()


def handed_down() -> tuple[Model, ...]:
    return _MODELS_JSON.validate_json(os.environ[_MODELS])


def owner_name(hostname: str, parent_pid: int) -> str:
    """Name the owner of a worker's claims. All children of a worker have the same owner."""
    return f"{hostname}/{parent_pid}"


def _leave(name: str, content: bytes) -> None:
    file = Path(os.environ[FOLDER], f"{name}{os.getpid()}")
    partial = file.with_name(f".{file.name}")
    partial.write_bytes(content)
    partial.rename(file)


def leave_loaded(device: str) -> None:
    """Report that this child has loaded its model on a device of this kind, such as `cuda`."""
    _leave(_LOADED, device.encode())


def found_loaded(folder: Path, child: int) -> str | None:
    """Return the kind of device on which a child has loaded its model. None while it loads."""
    try:
        return (folder / f"{_LOADED}{child}").read_text("utf-8")
    except FileNotFoundError:
        return None


def leave_held(shards: Held) -> None:
    """Report which shards this child works on. A shard is reported before it is claimed.

    If the disk is full, the report stays old: at worst, a dead child's shard waits until its lease expires.
    """
    try:
        _leave(_HELD, _HELD_JSON.dump_json(shards))
    except OSError as error:
        logger.warning("This process could not report its shards: %s", error)


def found_held(folder: Path) -> dict[int, Held]:
    """Read the shards of each child, living or dead, by process id."""
    files = {file: int(file.name.removeprefix(_HELD)) for file in folder.glob(f"{_HELD}*")}
    return {child: _HELD_JSON.validate_json(file.read_bytes()) for file, child in files.items()}


def take_held(folder: Path, child: int) -> Held:
    """Read and remove the report of a dead child, so that its shards are queued only once."""
    shards = found_held(folder).get(child, [])
    (folder / f"{_HELD}{child}").unlink(missing_ok=True)
    return shards


def report_ready() -> None:
    """Report to the supervisor, if there is one, that this worker has loaded its model."""
    if file := os.environ.get(READY):
        Path(file).touch()


def report_end(reason: str) -> None:
    """Report why this worker ends, on stderr and to its supervisor, if there is one."""
    write_last_line("worker", reason)
    if file := os.environ.get(REASON):
        Path(file).write_text(reason, "utf-8")


def leave_failure(reason: str) -> None:
    Path(os.environ[FOLDER], _FAILURE).write_text(reason, "utf-8")


def found_failure(folder: Path) -> str | None:
    file = folder / _FAILURE
    return file.read_text("utf-8") if file.exists() else None


def crash_report_path() -> Path:
    """Return the file to which `faulthandler` writes the traces of this child's threads after a crash."""
    return Path(os.environ[FOLDER], f"{_CRASH}{os.getpid()}")


def take_crash_reports(folder: Path) -> str:
    """Read and remove the crash reports of dead children, so that each is logged only once."""
    reports = []
    for file in sorted(folder.glob(f"{_CRASH}*")):
        if not Path("/proc", file.name.removeprefix(_CRASH)).exists():
            reports.append(file.read_text(errors="replace").strip())
            file.unlink()
    return "\n".join(filter(None, reports))
