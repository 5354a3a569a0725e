"""The values that the ledger takes and returns. Knows no Redis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.fleet.run.spec import RunSpec, Shard

_STALLED_SECONDS = 300.0
_SILENT_SECONDS = 15.0  # as in shardsift/fleet/presence/announcements.py; a worker reports every 5 s


class Refusal(StrEnum):
    """The reason why a claim was refused. A refusal is not an error."""

    UNKNOWN = "unknown"  # no such run or shard: the message is older than the ledger
    CANCELLED = "cancelled"
    PAUSED = "paused"
    FORMAT = "format"  # the run is scored in another number format
    FULL = "full"  # the run has as many workers as it may have
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"  # another worker holds it
    WAITING = "waiting"  # its back-off has not ended yet


class Outcome(StrEnum):
    """The way in which an attempt without a receipt ended. It decides whether and when the shard is tried again."""

    STOPPED = "stopped"  # by a signal, a spot notice, a pause or a cancellation: does not count
    ERROR = "error"  # network, disk or service: retried with a growing back-off
    CRASH = "crash"  # the process died or had an unexpected error: failed after a few of these
    NON_RETRYABLE = "non-retryable"  # no further attempt can succeed: failed at once


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker's time-limited right to a shard. The ledger refuses a worker whose fencing `token` is stale."""

    run_id: str
    shard: Shard
    spec: RunSpec
    token: str
    attempt: int
    spilled: bool = False  # whether earlier attempts stored scores with the output, because the ledger was full

    @property
    def what(self) -> str:
        return f"Shard {self.shard.name}"

    @property
    def what_in_full(self) -> str:
        return f"Shard {self.shard.name} of {self.run_id}"

    @property
    def log_fields(self) -> dict[str, object]:
        return {"run_id": self.run_id, "shard": self.shard.name, "attempt": self.attempt}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The numbers of shards by state and of rows by outcome. `rows_running` counts scored rows of unfinished shards.

    `shards` is the number that was enqueued. A shard that is not running, done or failed counts as queued, even if
    Redis has lost it; then `is_whole` is false.
    """

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
    worker_seconds: float = (
        0.0  # time for which workers held shards, in all; a running shard counts until its last renewal
    )

    duplicates: int = 0  # dropped rows whose text an earlier row has; counted when all shards are done
    stored_bytes: int = 0  # bytes of done shards in the output
    failed_attempts: int = 0  # errors and crashes since a shard was last done
    tokens: int = 0  # tokens of done shards
    phase_seconds: Mapping[str, float] = field(default_factory=dict)  # by `Phase`, of attempts that finished a shard
    is_whole: bool = True  # whether Redis has the state of every shard; if not, enqueueing the run again repairs it

    @property
    def open(self) -> int:
        return self.queued + self.running

    @property
    def rows_scored(self) -> int:
        return self.rows_in + self.rows_running


@dataclass(frozen=True, kw_only=True)
class RunningShard:
    name: str
    worker: str
    rows: int
    attempt: int = 1
    seen_seconds: float = 0.0  # since the worker's last report
    lease_seconds_left: float = 0.0  # until another worker may take the shard, unless the lease is renewed
    report: AttemptReport | None = None  # None before its first renewal

    @property
    def is_silent(self) -> bool:
        """Whether the worker has not reported lately: it may be gone, stopped, or cut off from Redis."""
        return self.seen_seconds > _SILENT_SECONDS

    @property
    def idle_seconds(self) -> float:
        """The time since the last progress that the worker reported; 0 if it is silent or does not report progress."""
        said = self.report.idle_seconds if self.report and not self.is_silent else None
        return 0.0 if said is None else said + self.seen_seconds

    @property
    def is_stalled(self) -> bool:
        """Whether the worker reports no progress for minutes. Its process is replaced after SHARDSIFT_STALL_SECONDS."""
        return self.idle_seconds > _STALLED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Steering:
    """Limits on the speed and cost of a run. They are not part of its spec, and may change at any time."""

    max_workers: int | None = None  # workers that may score the run at the same time; None: no limit
    max_cost: float | None = None  # the run is paused at this cost, in the currency of the price
    price_per_gpu_hour: float | None = None

    def cost(self, worker_seconds: float) -> float | None:
        """Return the cost of this much work, with one GPU per worker. None if the price is unknown."""
        return None if self.price_per_gpu_hour is None else worker_seconds / 3600 * self.price_per_gpu_hour

    def why_too_expensive(self, worker_seconds: float) -> str | None:
        """Return a clause that says that the cost has reached its limit.

        None if it has not, or if there is no limit.
        """
        cost = self.cost(worker_seconds)
        if self.max_cost is None or cost is None or cost < self.max_cost:
            return None
        return f"it has cost {cost:,.2f}, and --max-cost is {self.max_cost:g}"

    def __str__(self) -> str:
        workers = (
            "any number of workers" if self.max_workers is None else f"at most {counted(self.max_workers, 'worker')}"
        )
        cost = (
            "" if self.max_cost is None else f", at most {self.max_cost:g} at {self.price_per_gpu_hour:g} per GPU-hour"
        )
        return f"{workers}{cost}"


@dataclass(frozen=True, kw_only=True)
class Publication:
    uri: str  # of the output
    commit: str  # empty for a folder
    shards: int


@dataclass(frozen=True, kw_only=True)
class RunState:
    complete: bool = False  # whether enqueueing finished; a producer may have died midway
    cancelled: bool = False
    replaced_by: str | None = None  # the run that took its output, if it was cancelled for that
    paused: str | None = None  # the reason, empty if a person asked for it; None if the run is not paused
    number_format: str | None = None  # format that workers must use; None if none has begun, or any will do
    steering: Steering = Steering()
    publication: Publication | None = None
    publish_error: str | None = None  # why the last attempt to publish failed
    publish_failed: bool = False  # permanently: no finalizer tries again before a person asks for it


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run with open shards.

    `running` shards have a worker. `queued` is the number of further shards that may get one.
    """

    run_id: str
    spec: RunSpec
    queued: int
    running: int
    number_format: str | None = None  # format that workers must use; None: any


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The last failed attempt at a shard, and the worker that made it.

    The shard is failed (a dead letter), or is tried again. `crashes` and `errors` count the `attempts` that ended by a
    crash or by a temporary error. A stop counts as neither.
    """

    shard: str
    error: str = ""
    traceback: str = ""
    worker: str = ""
    attempts: int = 0
    crashes: int = 0
    errors: int = 0


@dataclass(frozen=True, kw_only=True)
class Due:
    """Shards that need a message. Shards in `again` were started before and are sent first; shards in `fresh` are new.

    If `more`, further shards may be due that did not fit into this answer.
    """

    again: list[str]
    fresh: list[str]
    more: bool

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)
