"""The state of a run: its facts, and the word, exit code and JSON that follow from them."""

import html
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

import redis

from shardsift.fleet.errors import ExitCode
from shardsift.fleet.ledger import Counts, Failure, Pace, RunningShard
from shardsift.fleet.ledger.connect import why_no_writes
from shardsift.fleet.ledger.records import RunState
from shardsift.fleet.presence.announcements import (
    FinalizerState,
    MachineState,
    WorkerState,
    list_finalizers,
    list_machines,
    list_workers,
)
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Histogram
from shardsift.fleet.storage.inspection import Finding
from shardsift.producer.status.forecast import Cost, Remaining, cost_of, remaining

STALL_SECONDS = 180.0  # without a scored row, although workers are ready
MOST_RETRIES = 100  # limit of `retries` in a view


class Checked(StrEnum):
    """The depth of a check of a published output. Both levels also check that every file exists."""

    SIZES = "sizes"
    SHA256 = "sha256"


@dataclass(frozen=True, kw_only=True, repr=False)
class RunStatus(RunState):
    """The current state of a run, from the ledger and its workers. `str()` of it is what `producer status` prints."""

    run_id: str
    output_uri: str
    queue: str
    counts: Counts
    pace: Pace
    failures: tuple[Failure, ...]  # of failed shards
    refused: dict[str, int]  # kind of invalid message → how often it came, over all runs
    retries: tuple[Failure, ...] = ()  # last errors of open shards that are tried again; the first hundred
    workers: tuple[WorkerState, ...] = ()  # live workers on its queue that are not stopping
    workers_elsewhere: int = 0  # live workers on other queues
    other_models: tuple[str, ...] = ()  # its model folders that have other files on a machine
    running: tuple[RunningShard, ...] = ()
    where: str | None = None  # the run's filter
    scores_are_stored: bool = False  # in an earlier run's output, so no model is loaded
    histograms: dict[str, Histogram] = field(default_factory=dict)  # of the rows scored so far, by score column
    machines: tuple[MachineState, ...] = ()  # that start workers for the run
    unable: tuple[MachineState, ...] = ()  # that could not serve the run lately
    finalizers: tuple[FinalizerState, ...] = ()  # that publish the run
    no_writes: str = ""  # why Redis refuses writes, and what to do; workers and finalizers are then invisible
    worker_command: str = "worker start"
    is_of_this_machine: bool = False  # whether it is a `producer run` of this machine
    findings: tuple[Finding, ...] = ()  # the results of inspecting the published output
    checked: Checked | None = None  # None if the output was not checked
    formats: dict[str, str] = field(default_factory=dict)  # score column → its format, if a faster one was refused
    error_reasons: dict[str, int] = field(default_factory=dict)  # reason → errored rows; most rows first
    left_out: dict[str, int] = field(default_factory=dict)  # field that the output lacks → rows; most rows first

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"<RunStatus {self.word}: {counts.done:,} of {counted(counts.shards, 'shard')} done, "
            f"{counts.rows_in:,} rows in, {counts.rows_kept:,} kept; {self.run_id}>"
        )

    def __str__(self) -> str:
        from shardsift.producer.status.screen import status_screen  # which formats this class

        return "\n".join(status_screen(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    @property
    def rows_written(self) -> int:
        """The number of rows that have been filtered, kept or not, including rows of running shards."""
        return self.counts.rows_in + sum(shard.report.rows_written for shard in self.running if shard.report)

    @property
    def rows_kept(self) -> int:
        return self.counts.rows_kept + sum(shard.report.rows_kept for shard in self.running if shard.report)

    @property
    def is_published(self) -> bool:
        """Whether no shard is open, and all shards that are done now are published."""
        return self.publication is not None and self.publication.shards == self.counts.done and not self.counts.open

    @property
    def is_paused(self) -> bool:
        """Whether open shards wait for `producer resume`.

        False without open shards: such a run may be published although it was paused.
        """
        return self.paused is not None and bool(self.counts.open) and not self.cancelled

    @property
    def rows_per_second(self) -> float:
        """The speed in the last minutes if the run is running, otherwise the speed of the whole run."""
        pace = self.pace
        return pace.rows_per_second_lately if self.word == "running" else pace.rows_per_second

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]

    @property
    def word(self) -> str:
        if self.is_published and self.damage:
            return "damaged"
        if self.is_published:
            return "published without its failed shards" if self.counts.failed else "published"
        if self.cancelled:
            return "cancelled"
        if not self.complete:
            return "half enqueued"
        if not self.counts.is_whole:
            return "record lost"
        if self.is_paused:
            return "paused"
        if self.counts.open:
            return self._word_of_open_shards
        return "failed" if self.counts.failed or self.publish_failed else "publishing"

    @property
    def _word_of_open_shards(self) -> str:
        if not self.workers:
            if self.is_of_this_machine and not self.machines:
                return "stopped"
            has_begun = self.counts.seconds > 0 or self.counts.done
            return "stalled" if has_begun and not self.machines else "queued"
        if not self.serving:
            return "loading"
        if not self.counts.running and all(worker.run_id not in (None, self.run_id) for worker in self.serving):
            return "queued"
        if self._only_retries:
            return "retrying"
        times = [worker.activity_seconds for worker in self.serving]
        times += [seconds for seconds in (self.pace.idle_seconds, self.pace.queued_seconds) if seconds is not None]
        return "running" if min(times) < STALL_SECONDS else "stalled"

    @property
    def _only_retries(self) -> bool:
        """Whether all running shards are retries. If none is running, whether all open shards are."""
        retried = {failure.shard for failure in self.retries}
        are_running = [shard.name in retried for shard in self.running]
        return bool(retried) and (
            len(retried) == min(self.counts.open, MOST_RETRIES) if not are_running else all(are_running)
        )

    @property
    def remaining(self) -> Remaining | None:
        """The time left. None if the run is not running, or no shard was done since the last failed attempt."""
        is_moving = self.word == "running" and self.advances and not self.counts.failed_attempts
        return remaining(self.counts, self.pace, self.running) if is_moving else None

    @property
    def time_left(self) -> str:
        """The time left, for example `50 min to 1 h 10 min`. Empty if unknown."""
        return str(self.remaining or "")

    @property
    def cost(self) -> Cost | None:
        return cost_of(self.counts, self.remaining, self.steering)

    @property
    def advances(self) -> bool:
        idle = self.pace.idle_seconds
        return idle is not None and idle < STALL_SECONDS

    @property
    def serving(self) -> tuple[WorkerState, ...]:
        return tuple(worker for worker in self.workers if worker.activity in ("ready", "busy"))

    @property
    def silent(self) -> tuple[RunningShard, ...]:
        """Leased shards without a recent report from their worker."""
        return tuple(shard for shard in self.running if shard.is_silent)

    @property
    def stalled(self) -> tuple[RunningShard, ...]:
        return tuple(shard for shard in self.running if shard.is_stalled)

    @property
    def is_unserved(self) -> bool:
        """Whether the run waits for a worker, and none will come by itself."""
        return self.word in ("queued", "stalled", "stopped") and not self.workers and not self.machines

    @property
    def is_trying_again(self) -> bool:
        """Whether an open shard is tried again, or an attempt has failed since a shard was last done."""
        return bool(self.counts.open and (self.retries or self.counts.failed_attempts))

    @property
    def lacks_finalizer(self) -> bool:
        """Whether the run needs a finalizer, and none is seen.

        A `producer run` restarts its own finalizer. So for such a run, a missing one counts only when the run is to be
        published.
        """
        is_awaited = self.word == "publishing" or not self.is_of_this_machine
        return self.complete and not self.is_over and not self.finalizers and is_awaited

    @property
    def loading(self) -> tuple[WorkerState, ...]:
        return tuple(worker for worker in self.workers if worker.activity == "loading")

    @property
    def exit_code(self) -> ExitCode:
        if self.is_published:
            return ExitCode.FAILED if self.counts.failed or self.damage else ExitCode.DONE
        if self.cancelled:
            return ExitCode.CANCELLED
        return ExitCode.FAILED if self._has_ended_badly else ExitCode.RUNNING

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self.cancelled or self.is_published or self._has_ended_badly

    @property
    def is_under_way(self) -> bool:
        """Whether the run continues by itself, or would if it had workers."""
        return not self.is_over and self.word not in ("paused", "stopped", "half enqueued")

    @property
    def _has_ended_badly(self) -> bool:
        if self.word == "record lost":
            return True
        return (self.counts.failed > 0 or self.publish_failed) and not self.counts.open

    def as_json(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            **asdict(self),
            "state": self.word,
            "rows_per_second": round(self.rows_per_second, 1),
            "rows_kept_so_far": self.rows_kept,
            "remaining_seconds": asdict(self.remaining) if self.remaining else None,
            "cost": asdict(self.cost) if self.cost else None,
        }


@dataclass(frozen=True, kw_only=True)
class Present:
    """The workers, machines and finalizers that have announced themselves lately."""

    workers: tuple[WorkerState, ...] = ()
    machines: tuple[MachineState, ...] = ()
    finalizers: tuple[FinalizerState, ...] = ()
    no_writes: str = ""

    @classmethod
    def read(cls, client: redis.Redis) -> Self:
        return cls(
            workers=tuple(list_workers(client)),
            machines=tuple(list_machines(client)),
            finalizers=tuple(list_finalizers(client)),
            no_writes=why_no_writes(client),
        )
