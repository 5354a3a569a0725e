"""Draw what `producer status` prints: the verdict, the facts about the run, a line each, and what to do."""

import math
from collections.abc import Iterator, Sequence

from rich.filesize import decimal
from rich.table import Table

from shardsift.fleet.ledger import RunningShard
from shardsift.fleet.presence.announcements import machines_line
from shardsift.fleet.process.wording import counted, duplicates_line, left_out_line, shown_duration
from shardsift.fleet.run.receipt import AttemptReport, Histogram
from shardsift.producer.scores.distribution import score_bins
from shardsift.producer.status.advice import verdict, what_next
from shardsift.producer.status.forecast import Cost
from shardsift.producer.status.view import Present, RunStatus

_BAR_WIDTH = 40
_BARS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 40
_NAMED_WORKERS = 16
_SHOWN_SHARE = 0.05  # of the time of an attempt


def status_screen(status: RunStatus) -> list[str]:
    first, (run, *facts) = verdict(status), status_lines(status)
    return [first, "", run, *_bar(status), *facts, *(line for line in what_next(status) if line not in first)]


def _bar(status: RunStatus) -> Iterator[str]:
    """Draw a bar of done, running, failed and queued shards, for example `██████▒▒▒×░░░░░░  37% of shards done`.

    Empty if no shard is open.
    """
    counts = status.counts
    if not counts.open:
        return
    bar, so_far = "", 0
    for mark, shards in (("█", counts.done), ("▒", counts.running), ("×", counts.failed), ("░", counts.queued)):
        so_far += shards
        bar += mark * (_BAR_WIDTH * so_far // counts.shards - len(bar))
    yield f"progress {bar}  {100 * counts.done // counts.shards}% of shards done"


def status_lines(status: RunStatus) -> list[str]:
    counts = status.counts
    return [
        f"run      {status.run_id}",
        f"shards   {counts.done:,} of {counts.shards:,} done, {counts.running:,} running, {counts.queued:,} queued, "
        f"{counts.failed:,} failed",
        f"rows     {counts.rows_in:,} in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped"
        f"{duplicates_line(counts.duplicates)}, {counts.rows_errored:,} errored{_unfinished(status)}",
        *_kept(status),
        *_errored(status),
        *(f"format   {column} in {shown}" for column, shown in status.formats.items()),
        f"speed    {_speed(status)}",
        *_spent(status),
        f"workers  {_workers(status)}{_at_most(status)}",
        *_at_work(status),
        f"output   {status.output_uri}{_stored(status)}",
    ]


def _kept(status: RunStatus) -> Iterator[str]:
    if (status.where or "").lower() == "false":
        yield "kept     no row: this run publishes scores, by which rows can be chosen"
    elif status.counts.open and status.rows_written:
        yield f"kept     {status.rows_kept / status.rows_written:.1%} so far"
    elif status.counts.done and not status.counts.open and not status.counts.rows_kept:
        scored = {name: score_bins(histogram) for name, histogram in status.histograms.items() if histogram.rows}
        highest = [
            f"the highest {name} is from {bins[-1].start:g} to {bins[-1].end:g}" for name, bins in scored.items()
        ]
        yield "; ".join(["kept     no row", *highest])
    for column, histogram in status.histograms.items():
        if status.counts.open and histogram.rows:
            yield f"scores   {spread_line(histogram)}  {column}"


def spread_line(histogram: Histogram) -> str:
    """Draw a histogram in one line, from the lowest score to the highest, for example `0.25 ▂▄█▇▅▃▁ 4.5`."""
    bins = score_bins(histogram, most=_MOST_BARS)
    most = max(one.rows for one in bins)
    bars = "".join(_BARS[math.ceil(one.rows * (len(_BARS) - 1) / most)] for one in bins)
    return f"{bins[0].start:g} {bars} {bins[-1].end:g}"


def _errored(status: RunStatus) -> Iterator[str]:
    if status.error_reasons:
        yield f"errored  {', '.join(f'{rows:,} {reason}' for reason, rows in status.error_reasons.items())}"
    if status.left_out:
        yield f"left out {left_out_line(status.left_out)}"


def _unfinished(status: RunStatus) -> str:
    rows = status.counts.rows_running
    return f"; {rows:,} scored in shards that are not done" if rows else ""


def _speed(status: RunStatus) -> str:
    pace = status.pace
    if status.word == "running":
        lately = f"{status.rows_per_second:,.0f} rows/s over the last {shown_duration(pace.seconds_lately)}"
        left = status.time_left
        return f"{lately}{f'; {left} left' if left else ''}"
    return f"{status.rows_per_second:,.0f} rows/s over {shown_duration(pace.seconds)} of work"


def _spent(status: RunStatus) -> Iterator[str]:
    left, seconds = status.remaining, status.counts.worker_seconds
    if seconds:
        coming = f", about {shown_duration(left.worker_seconds)} to come" if left else ""
        yield f"work     {shown_duration(seconds)} of all workers together{coming}"
    if status.cost:
        yield from _cost(status.cost)


def _cost(cost: Cost) -> Iterator[str]:
    coming = f", about {cost.to_come:,.2f} to come" if cost.to_come is not None else ""
    rate = f"; {cost.per_million_rows:,.2f} per million rows" if cost.per_million_rows is not None else ""
    yield f"cost     {cost.so_far:,.2f} so far{coming}{rate}; starts and idle time are not counted"


def _at_work(status: RunStatus) -> Iterator[str]:
    devices = {worker.name: worker.device for worker in status.workers}
    for shard in status.running[:_NAMED_WORKERS]:
        device = devices.get(shard.worker) or (shard.report.device if shard.report else None)
        on = f" ({device})" if device else ""
        yield f"         {shard.worker or 'a worker'}{on}: {counted(shard.rows, 'row')} of {shard.name}{_of_attempt(shard)}"
    if len(status.running) > _NAMED_WORKERS:
        yield f"         and {len(status.running) - _NAMED_WORKERS:,} more"


def _of_attempt(shard: RunningShard) -> str:
    """Format an attempt, to append to its shard's line: `; 117 rows/s; 91% device, 6% tokenize; no report for 40 s`."""
    again = f"; attempt {shard.attempt}" if shard.attempt > 1 else ""
    seen = f"; no report for {shown_duration(shard.seen_seconds)}" if shard.is_silent else ""
    if not shard.report:
        return f"{again}{seen}"
    total = sum(shard.report.seconds.values()) or 1.0
    spent = sorted(shard.report.seconds.items(), key=lambda phase: -phase[1])
    shares = ", ".join(f"{seconds / total:.0%} {phase}" for phase, seconds in spent if seconds >= _SHOWN_SHARE * total)
    return f"; {shard.report.rows_per_second:,.0f} rows/s; {shares}{_of_device(shard.report)}{again}{seen}"


def _of_device(report: AttemptReport) -> str:
    """Format the backend and the use of the device, to append to a shard's line: `; graphed, 41% of peak, 97% busy`.

    Empty if neither is known.
    """
    shares = {"of peak": report.peak_share, "of memory": report.memory_share, "busy": report.busy_share}
    known = [f"{share:.0%} {what}" for what, share in shares.items() if share is not None]
    shown = ", ".join(filter(None, [report.backend, *known]))
    return f"; {shown}" if shown else ""


def _stored(status: RunStatus) -> str:
    return (
        f"; {decimal(status.counts.stored_bytes)} in {counted(status.counts.done, 'shard')}"
        if status.counts.done
        else ""
    )


def _workers(status: RunStatus) -> str:
    doing = [worker.activity for worker in status.workers]
    shown = ", ".join(
        f"{doing.count(activity)} {activity}" for activity in ("busy", "ready", "loading") if activity in doing
    )
    if not shown and status.machines and status.counts.open:
        return f"none yet; {machines_line(status.machines)}"
    return shown or "none"


def _at_most(status: RunStatus) -> str:
    most = status.steering.max_workers
    return f"; at most {most:,} have shards at once" if most else ""


def status_table(statuses: Sequence[RunStatus]) -> Table:
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
    """Count workers and machines, for example `2 workers; 3 machines, 1 of them free: gpu-box/4711`."""
    workers = counted(len(present.workers), "worker")
    return f"{workers}; {machines_line(present.machines)}" if present.machines else workers
