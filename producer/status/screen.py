"""What `producer status` prints: the verdict, the facts, and what to do."""

from collections.abc import Iterator

from rich.table import Table

from fleet.presence.announcements import machines_line
from fleet.process.wording import counted
from producer.status.advice import what_next
from producer.status.facts import status_lines
from producer.status.read import Present
from producer.status.state import RunStatus
from producer.status.verdict import verdict

_BAR_WIDTH = 40


def status_screen(status: RunStatus) -> list[str]:
    """What `producer status` prints: the verdict, the facts, and what to do."""
    first, (run, *facts) = verdict(status), status_lines(status)
    return [first, "", run, *_bar(status), *facts, *(line for line in what_next(status) if line not in first)]


def _bar(status: RunStatus) -> Iterator[str]:
    """A bar of the run's shards: done, running, failed, queued. For example `██████▒▒▒×░░░░░░  37% of shards done`."""
    counts = status.counts
    if not counts.open:
        return
    bar, so_far = "", 0
    for mark, shards in (("█", counts.done), ("▒", counts.running), ("×", counts.failed), ("░", counts.queued)):
        so_far += shards
        bar += mark * (_BAR_WIDTH * so_far // counts.shards - len(bar))
    yield f"progress {bar}  {100 * counts.done // counts.shards}% of shards done"


# The runs of a fleet for people: a table with a line for each, and who is there to serve them.


def status_table(statuses: list[RunStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("queued", "running", "done", "failed", "rows in", "kept", "errored", "rows/s"):
        table.add_column(name, justify="right")
    for status in statuses:
        counts = status.counts
        numbers = (counts.queued, counts.running, counts.done, counts.failed, counts.rows_in, counts.rows_kept)
        table.add_row(
            status.run_id,
            "publishing, no finalizer" if status.word == "publishing" and status.lacks_finalizer else status.word,
            *(f"{number:,}" for number in (*numbers, counts.rows_errored)),
            f"{status.rows_per_second:,.0f}",
        )
    return table


def present_line(present: Present) -> str:
    """For example `2 workers; 3 machines, 1 of them free: gpu-box/4711`."""
    workers = counted(len(present.workers), "worker")
    return f"{workers}; {machines_line(present.machines)}" if present.machines else workers
