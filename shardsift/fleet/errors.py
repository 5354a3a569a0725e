"""The tree of errors that commands and workers act on, and all exit codes. A class exists only if some code catches it.

ShardsiftError
├── UsageError        the user can fix it            → one line on stderr, exit code 2
│   ├── OutputTaken      another run has the output   → `enqueue` takes over, if that run has scored nothing
│   └── ScoredBefore     another run has the scores   → a command on a terminal asks whether to score again
├── NothingToAdd      a dataset has all files        → the command says so, exit code 0
├── ShardError        this shard cannot be scored    → recorded as failed; the worker continues
├── TransientError    may go away by itself          → the shard or request is tried again later
│   └── PublishConflict  the output changed meanwhile → the finalizer looks again
├── LeaseLost         another worker has the shard   → the worker drops its output
├── RunUnknown        Redis has lost the run         → the worker ends its shard; its stored receipt survives
├── Stopped           the work must stop here        → checkpoint, release
└── OutputDamaged     files do not match receipts    → the finalizer queues those shards again
"""

import errno
import os
import shlex
from collections.abc import Iterable, Mapping
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path


class ShardsiftError(Exception):
    """The base class of shardsift's own errors."""


class UsageError(ShardsiftError):
    """A mistake that the user can fix. The message says what to do instead."""


class OutputTaken(UsageError):
    """The output belongs to another run. `run_id` is the id of that run."""

    def __init__(self, message: str, *, run_id: str = "") -> None:  # pickling needs a default
        super().__init__(message)
        self.run_id = run_id


class ScoredBefore(UsageError):
    """Another run has scored these rows. The message names the command that filters by its stored scores."""


class NothingToAdd(ShardsiftError):
    """The dataset to extend already has all files of the input. `published` is the object that `--json` prints."""

    def __init__(self, message: str, *, published: dict[str, object] | None = None) -> None:  # pickling needs a default
        super().__init__(message)
        self.published = published


class ShardError(ShardsiftError):
    """The shard cannot be scored, because its file is missing, corrupt or has the wrong schema.

    It is not tried again, unless `of_machine`. Then the cause is this machine, which lacks a token, a permission or a
    mount, and other machines may try the shard.
    """

    def __init__(self, message: str, *, of_machine: bool = False) -> None:
        super().__init__(message)
        self.of_machine = of_machine


class TransientError(ShardsiftError):
    """A failure that may pass by itself: of the network, a disk or a service.

    `retry_after_seconds` is the wait that the service asked for; None if it asked for none. If `of_machine`, the cause
    is this machine, such as expired credentials.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None, of_machine: bool = False) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.of_machine = of_machine


class LeaseLost(ShardsiftError):
    """The ledger gave the shard to another attempt, or the run was cancelled."""


class RunUnknown(ShardsiftError):
    """The ledger no longer has the run."""


class Stopped(ShardsiftError):
    """Work on a shard or a model stopped between two batches, because of a signal or because the run is paused."""


class PublishConflict(TransientError):
    """The output changed after we inspected it and before our commit."""


class OutputDamaged(ShardsiftError):
    """Stored files are lost or damaged. `damaged` maps each affected shard to the reason; other shards are intact."""

    def __init__(self, damaged: Mapping[str, str]) -> None:
        first = next(iter(damaged.values()), "")
        shards = "1 shard" if len(damaged) == 1 else f"{len(damaged):,} shards"
        super().__init__(f"The stored files of {shards} are lost or damaged: {first}")
        self.damaged = dict(damaged)


def require(modules: Iterable[str], install: str, what: str) -> None:
    """Raise UsageError if this machine lacks one of the modules.

    `what` names the feature that needs them. `install` is the package that the message tells the user to install with
    pip. If it is empty, the message names the modules instead.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        packages = shlex.join([install] if install else missing)
        raise UsageError(f"{what} needs {' and '.join(missing)}, which this machine lacks: pip install {packages}")


def lack_of(error: BaseException) -> str:
    """Return a message for the user if the error means that disk space or memory ran out.

    Otherwise return an empty text.
    """
    if isinstance(error, MemoryError):
        return f"out of memory ({' '.join(str(error).split())[:300] or type(error).__name__})."
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    disk = "the disk"
    if name := error.filename2 or error.filename:
        file = Path(os.fsdecode(name)).absolute()
        disk = f"the disk of {next(path for path in file.parents if path.is_mount())}"
    return (
        f"{disk} is full: no space left. Free some on that disk; SHARDSIFT_SCRATCH_DIR, or TMPDIR for a command, moves "
        "scratch files to another."
    )


class ExitCode(IntEnum):
    """The exit codes of commands and of a worker's processes. 70 and 71 are EX_SOFTWARE and EX_OSERR of sysexits.h."""

    DONE = 0  # done, and published if the command waits for that; or stopped on request
    FAILED = 1  # shards failed, publishing failed, the published output has changed, or a check found a fault
    USAGE = 2  # a user's mistake, or no Redis
    RUNNING = 3  # not finished yet, or the Hub or a storage failed for now; the same command continues
    CANCELLED = 4
    UNEXPECTED = 5  # a bug; Python itself would exit with 1
    NO_MODEL = 70  # a worker cannot serve its model
    DEVICE_FAULT = 71  # a worker's process can no longer use its device
    INTERRUPTED = 130  # Ctrl-C
