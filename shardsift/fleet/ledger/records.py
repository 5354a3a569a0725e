"""The values that the ledger takes and returns. Knows no Redis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.fleet.run.spec import RunSpec, Shard

_STALLED_SECONDS = 300.0
_SILENT_SECONDS = 15.0  # as shardsift/fleet/presence/announcements.py has it; a worker reports every five


class Refusal(StrEnum):
    """Why a claim was not granted. None of these is an error."""

    UNKNOWN = "unknown"  # no such run or shard: the message is older than the ledger
    CANCELLED = "cancelled"
    PAUSED = "paused"
    FORMAT = "format"  # the run is scored in another number format
    FULL = "full"  # as many workers as the run may have score shards of it
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"  # another worker holds it
    WAITING = "waiting"  # its back-off has not ended yet


class Outcome(StrEnum):
    """How an attempt without a receipt ended. It decides what the attempt counts as."""

    STOPPED = "stopped"  # by a signal, a spot notice, a pause or a cancellation: does not count
    ERROR = "error"  # network, disk or service: retried with a growing back-off
    CRASH = "crash"  # the process died or met an unexpected error: failed after a few of them
    NON_RETRYABLE = "non-retryable"  # no further attempt can succeed: failed at once


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker's time-limited right to a shard. Each claim has its own fencing `token`, which keeps late writers out."""

    run_id: str
    shard: Shard
    spec: RunSpec
    token: str
    attempt: int
    spilled: bool = False  # the ledger was full, or takes no scores: earlier attempts stored them with the output

    @property
    def what(self) -> str:
        """The start of a log line. The run is one of its fields."""
        return f"Shard {self.shard.name}"

    @property
    def what_in_full(self) -> str:
        return f"Shard {self.shard.name} of {self.run_id}"

    @property
    def log_fields(self) -> dict[str, object]:
        """For `extra=` of a log call. See `shardsift/fleet/process/logs.py`."""
        return {"run_id": self.run_id, "shard": self.shard.name, "attempt": self.attempt}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Shards by state, and rows by outcome. `rows_running` are the rows scored so far in shards that are not done.

    `shards` is the number that was enqueued. What is neither running, done nor failed counts as queued, even if Redis has lost
    it; then the run is not whole.
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
        0.0  # time for which workers held shards, summed over workers; a running shard counts to its last renewal
    )

    stored_bytes: int = 0  # in the output, of the shards that are done
    failed_attempts: int = 0  # errors and crashes since a shard was last done
    tokens: int = 0  # of the shards that are done
    phase_seconds: Mapping[str, float] = field(default_factory=dict)  # of the attempts that finished them; see `Phase`
    is_whole: bool = True  # whether Redis has the state of every shard; if not, enqueueing the run again repairs it

    @property
    def open(self) -> int:
        return self.queued + self.running

    @property
    def rows_scored(self) -> int:
        return self.rows_in + self.rows_running


@dataclass(frozen=True, kw_only=True)
class RunningShard:
    """A shard that a worker holds, and the rows that it last reported as scored."""

    name: str
    worker: str
    rows: int
    attempt: int = 1
    seen_seconds: float = 0.0  # since it last reported
    lease_seconds_left: float = 0.0  # until another worker may take the shard, unless its worker renews the lease
    report: AttemptReport | None = None  # None before its first renewal

    @property
    def is_silent(self) -> bool:
        """Whether its worker has not reported lately: it may be gone, stopped, or cut off from Redis."""
        return self.seen_seconds > _SILENT_SECONDS

    @property
    def idle_seconds(self) -> float:
        """The time for which its worker has reported no progress; 0 if the worker is silent or does not say."""
        said = self.report.idle_seconds if self.report and not self.is_silent else None
        return 0.0 if said is None else said + self.seen_seconds

    @property
    def is_stalled(self) -> bool:
        """Whether its worker reports no progress for minutes. It is ended later, after `SHARDSIFT_STALL_SECONDS`."""
        return self.idle_seconds > _STALLED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Steering:
    """Limits on the speed and cost of a run. Not part of its spec, and changed at any time."""

    max_workers: int | None = None  # limit of workers that score the run at once; None: no limit
    max_cost: float | None = None  # cost at which the run is paused, in the currency of the price
    price_per_gpu_hour: float | None = None

    def cost(self, worker_seconds: float) -> float | None:
        """The cost of this much work, if the price is known. Each worker has one GPU."""
        return None if self.price_per_gpu_hour is None else worker_seconds / 3600 * self.price_per_gpu_hour

    def why_too_expensive(self, worker_seconds: float) -> str | None:
        """None while the cost is below the limit."""
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
class OpenRun:
    """A run with open shards. `running` ones have a worker; `queued` ones may have one, which `max_workers` limits."""

    run_id: str
    spec: RunSpec
    queued: int
    running: int
    number_format: str | None = None  # format that workers must use; None: any


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The last attempt at a shard that ended badly, and the worker that reported it.

    The shard is in the dead-letter list, or waits for another attempt. `crashes` and `errors` are how many of its `attempts`
    ended by a crash or an error that may go away. Stops count as neither.
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
    """Shards that need a message. Those in `again` were started before and go first; those in `fresh` were not.

    If `more` is set, other shards may be due that did not fit into this answer.
    """

    again: list[str]
    fresh: list[str]
    more: bool

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The place of a published run, and its commit (empty for folders)."""

    uri: str
    commit: str
    shards: int
