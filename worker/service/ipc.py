"""Signals, environment variables and files between a worker's parent and child. Light, because the parent imports it."""

import logging
import os
import signal
from pathlib import Path

from pydantic import TypeAdapter

from shardsift.fleet.process.logs import write_last_line
from shardsift.fleet.run.model import Model

STOP_SIGNAL = signal.SIGUSR2  # first: stop at the next batch; second: exit immediately. Celery uses SIGTERM itself
FOLDER = "SHARDSIFT_WORKER_FOLDER"  # variable with the folder in which children leave files for the parent
PARENT = "SHARDSIFT_WORKER_PID"  # variable with the process id of the parent
READY = "SHARDSIFT_WORKER_READY"  # variable with the file that a worker makes when its model is loaded
REASON = "SHARDSIFT_WORKER_REASON"  # variable with the file in which a worker reports to its supervisor why it ends
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
    """The models that this worker serves, as its parent passed them on."""
    return _MODELS_JSON.validate_json(os.environ[_MODELS])


def owner_name(hostname: str, parent_pid: int) -> str:
    """The owner of this worker's claims. It is the same for all children of a worker, and different for each worker."""
    return f"{hostname}/{parent_pid}"


def _leave(name: str, content: bytes) -> None:
    """Write a file of this child for the parent, whole or not at all."""
    file = Path(os.environ[FOLDER], f"{name}{os.getpid()}")
    partial = file.with_name(f".{file.name}")
    partial.write_bytes(content)
    partial.rename(file)


def leave_loaded(device: str) -> None:
    """Report that this child has loaded its model on a device of this kind, such as `cuda`."""
    _leave(_LOADED, device.encode())


def found_loaded(folder: Path, child: int) -> str | None:
    """The kind of device on which this child has loaded its model; None while it loads."""
    try:
        return (folder / f"{_LOADED}{child}").read_text("utf-8")
    except FileNotFoundError:
        return None


def leave_held(shards: Held) -> None:
    """Report which shards this child works on. A shard is reported before it is claimed.

    If the disk is full, the report is old: at worst, a shard of a dead child waits for the end of its lease.
    """
    try:
        _leave(_HELD, _HELD_JSON.dump_json(shards))
    except OSError as error:
        logger.warning("This process could not report its shards: %s", error)


def found_held(folder: Path) -> dict[int, Held]:
    """The shards of each child, by process id, also of dead ones."""
    files = {file: int(file.name.removeprefix(_HELD)) for file in folder.glob(f"{_HELD}*")}
    return {child: _HELD_JSON.validate_json(file.read_bytes()) for file, child in files.items()}


def take_held(folder: Path, child: int) -> Held:
    """Read and remove the report of a dead child, so that each shard is queued once."""
    shards = found_held(folder).get(child, [])
    (folder / f"{_HELD}{child}").unlink(missing_ok=True)
    return shards


def report_ready() -> None:
    """Report that this worker has its model loaded, if a supervisor runs it."""
    if file := os.environ.get(READY):
        Path(file).touch()


def report_end(reason: str) -> None:
    """Report why this worker ends, on stderr and to a supervisor that runs it."""
    write_last_line("worker", reason)
    if file := os.environ.get(REASON):
        Path(file).write_text(reason, "utf-8")


def leave_failure(reason: str) -> None:
    """Report why this child cannot score any shard."""
    Path(os.environ[FOLDER], _FAILURE).write_text(reason, "utf-8")


def found_failure(folder: Path) -> str | None:
    file = folder / _FAILURE
    return file.read_text("utf-8") if file.exists() else None


def crash_report_path() -> Path:
    """The file to which `faulthandler` writes the traces of this child's threads when it crashes."""
    return Path(os.environ[FOLDER], f"{_CRASH}{os.getpid()}")


def take_crash_reports(folder: Path) -> str:
    """Read and remove the crash reports of dead children, so that each is logged once."""
    reports = []
    for file in sorted(folder.glob(f"{_CRASH}*")):
        if not Path("/proc", file.name.removeprefix(_CRASH)).exists():
            reports.append(file.read_text(errors="replace").strip())
            file.unlink()
    return "\n".join(filter(None, reports))
