"""What the ledger gives and takes. Knows no Redis."""

from dataclasses import dataclass
from enum import StrEnum

from fleet.receipt import Receipt
from fleet.shard import Shard
from fleet.spec import RunSpec


class Refusal(StrEnum):
    """Why a claim was not granted; none of them is an error."""

    UNKNOWN = "unknown"  # no such run or shard: the message outlived its run
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"  # another worker holds it
    WAITING = "waiting"  # its back-off is not over


class Outcome(StrEnum):
    """How an attempt ended that recorded no receipt, and with it what the attempt counts as."""

    STOPPED = "stopped"  # by a signal, a spot notice or an operator: counts as nothing
    ERROR = "error"  # network, disk or service: tried again, later and later
    CRASH = "crash"  # the process died, or met what nobody foresaw: failed after a few of them
    NON_RETRYABLE = "non-retryable"  # no attempt can save it: failed now


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker's time-limited right to a shard; `token` fences late writers, and no two claims ever share one."""

    run_id: str
    shard: Shard
    spec: RunSpec
    token: str
    attempt: int
    spilled: bool = False  # earlier attempts left scores in the output's storage, since the ledger was full
    previous: Receipt | None = None  # of an attempt that was done, and whose files were lost or damaged since


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Shards by state and rows by fate; `rows_running` are those scored in shards not yet done."""

    shards: int
    queued: int
    running: int
    done: int
    failed: int
    rows_in: int
    rows_kept: int
    rows_dropped: int
    rows_errored: int
    rows_running: int
    seconds: float  # from the first claim to the last completion, or to now

    @property
    def open(self) -> int:
        return self.queued + self.running

    @property
    def rows_scored(self) -> int:
        return self.rows_in + self.rows_running


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed shard, with the last error and the worker that met it: an entry of the dead-letter list."""

    shard: str
    error: str
    traceback: str
    worker: str
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Due:
    """Shards to send messages for: those that were begun or tried before, which go first, and fresh ones.

    `more` says that there may be others, beyond what one answer holds.
    """

    again: list[str]
    fresh: list[str]
    more: bool

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Where a run was published, and which commit it was (empty for folders)."""

    uri: str
    commit: str
    shards: int
