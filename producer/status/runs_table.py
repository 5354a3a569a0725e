"""The runs of a fleet for people: a table with a line for each, and who is there to serve them."""

from rich.table import Table

from fleet.counted import counted
from fleet.machines import machines_line
from producer.status.read import Present
from producer.status.state import RunStatus


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
