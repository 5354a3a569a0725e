"""How a run stands: for the table that people read, the JSON that programs read, and the exit code that scripts read."""

from dataclasses import asdict, dataclass
from enum import IntEnum

from rich.table import Table

from fleet.ledger import Counts, Failure, Ledger, Publication


class ExitCode(IntEnum):
    """What every command of `producer` ends with."""

    DONE = 0  # done, and published where the command waits for that
    FAILED = 1  # some shards failed
    USAGE = 2  # wrong options, or no Redis
    RUNNING = 3  # not finished yet
    INTERRUPTED = 130  # Ctrl-C


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run as the ledger has it now."""

    run_id: str
    output_uri: str
    queue: str
    counts: Counts
    complete: bool
    cancelled: bool
    failures: tuple[Failure, ...]
    publication: Publication | None
    publish_error: str | None
    refused: dict[str, int]  # what nobody of ours in good order sends, over all runs, and how often it came

    @property
    def is_published(self) -> bool:
        """Published with every shard that is done now."""
        return self.publication is not None and self.publication.shards == self.counts.done and not self.counts.open

    @property
    def rows_per_second(self) -> float:
        return self.counts.rows_scored / self.counts.seconds if self.counts.seconds else 0.0

    @property
    def word(self) -> str:
        if self.cancelled:
            return "cancelled"
        if not self.complete:
            return "half enqueued"
        if self.counts.open:
            return "running"
        if self.is_published:
            return "published without its failed shards" if self.counts.failed else "published"
        return "failed" if self.counts.failed else "publishing"

    @property
    def exit_code(self) -> ExitCode:
        if self.counts.failed and not self.counts.open:
            return ExitCode.FAILED
        return ExitCode.DONE if self.is_published else ExitCode.RUNNING

    @property
    def is_over(self) -> bool:
        """Nothing more will happen by itself."""
        return self.cancelled or (not self.counts.open and (bool(self.counts.failed) or self.is_published))

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"state": self.word, "rows_per_second": round(self.rows_per_second, 1)}


def run_status(ledger: Ledger, run_id: str) -> RunStatus:
    """Raises UsageError for a run that the ledger does not have."""
    spec = ledger.spec(run_id)
    return RunStatus(
        run_id=run_id,
        output_uri=spec.output_uri,
        queue=spec.queue,
        counts=ledger.counts(run_id),
        complete=ledger.is_complete(run_id),
        cancelled=ledger.is_cancelled(run_id),
        failures=tuple(ledger.failures(run_id)),
        publication=ledger.publication(run_id),
        publish_error=ledger.publish_error(run_id),
        refused=ledger.refused(),
    )


def status_table(statuses: list[RunStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("queued", "running", "done", "failed", "rows in", "kept", "errored", "rows/s"):
        table.add_column(name, justify="right")
    for status in statuses:
        counts = status.counts
        numbers = (counts.queued, counts.running, counts.done, counts.failed, counts.rows_in, counts.rows_kept)
        table.add_row(
            status.run_id,
            status.word,
            *(f"{number:,}" for number in (*numbers, counts.rows_errored)),
            f"{status.rows_per_second:,.0f}",
        )
    return table


def status_lines(status: RunStatus) -> list[str]:
    counts = status.counts
    return [
        f"run      {status.run_id}",
        f"state    {status.word}",
        f"shards   {counts.done:,} of {counts.shards:,} done, {counts.running:,} running, {counts.queued:,} queued, "
        f"{counts.failed:,} failed",
        f"rows     {counts.rows_in:,} in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, "
        f"{counts.rows_errored:,} errored",
        f"speed    {status.rows_per_second:,.0f} rows/s over {counts.seconds:,.0f} s",
        f"output   {status.output_uri}",
    ]


def what_next(status: RunStatus) -> list[str]:
    """Sentences below the table: what is wrong, and the command that mends it."""
    lines = [
        f"shard {failure.shard} failed on {failure.worker} (attempt {failure.attempts}): {failure.error}"
        for failure in status.failures
    ]
    if status.publish_error and not status.is_published:
        lines.append(f"Publishing has not landed yet, and is tried again: {status.publish_error}")
    if status.failures and not status.is_published:
        lines.append(f"Try them again: producer retry {status.run_id}")
        if status.counts.done:
            lines.append(f"Or publish the others without them: producer finalize {status.run_id}")
    if status.cancelled:
        lines.append(f"Take it up again: producer retry {status.run_id}")
    if not status.complete:
        lines.append("Its enqueue did not end: run the same command again, and it begins.")
    if status.complete and status.counts.open and not status.counts.running and not status.cancelled:
        lines.append(
            f"No worker has a shard of it now. Its queue is {status.queue}; `worker start` with its model serves it."
        )
    if status.refused:
        refused = "; ".join(f"{times:,} {what}" for what, times in status.refused.items())
        lines.append(f"Refused so far, over all runs: {refused}.")
    if status.is_published and status.publication:
        lines.append(f"Published: {status.publication.uri} {status.publication.commit}".rstrip())
    return lines
