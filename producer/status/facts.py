"""The facts about a run, a line each: shards, rows, scores, speed, cost, workers, output."""

from collections.abc import Iterator

from rich.filesize import decimal

from fleet.attempt_report import AttemptReport
from fleet.counted import counted
from fleet.durations import shown_duration
from fleet.ledger import RunningShard
from fleet.machines import machines_line
from producer.cost import LISTED, Cost
from producer.score_lines import kept_line, spread_line
from producer.status.state import RunStatus

_NAMED_WORKERS = 16
_FEW_SECONDS = 10.0
_SHOWN_SHARE = 0.05  # of the time of an attempt


def status_lines(status: RunStatus) -> list[str]:
    counts = status.counts
    return [
        f"run      {status.run_id}{_priority(status)}",
        f"shards   {counts.done:,} of {counts.shards:,} done, {counts.running:,} running, {counts.queued:,} queued, "
        f"{counts.failed:,} failed",
        f"rows     {counts.rows_in:,} in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, "
        f"{counts.rows_errored:,} errored{_unfinished(status)}",
        *_kept(status),
        *_errored(status),
        *(f"format   {column} in {told}" for column, told in status.formats.items()),
        f"speed    {_speed(status)}",
        *_spent(status),
        f"workers  {_workers(status)}{_at_most(status)}",
        *_at_work(status),
        f"output   {status.output_uri}{_stored(status)}",
        *_waves(status),
    ]


def _kept(status: RunStatus) -> Iterator[str]:
    """What is known of the scores while the run goes on. `producer scores` tells more."""
    if status.counts.open and status.rows_written:
        yield f"kept     {kept_line(status.rows_kept, status.rows_written, status.where, status.histograms)}"
    for column, histogram in status.histograms.items():
        if status.counts.open and histogram.rows:
            yield f"scores   {spread_line(histogram)}{f'  {column}' if len(status.histograms) > 1 else ''}"


def _errored(status: RunStatus) -> Iterator[str]:
    if status.error_reasons:
        yield f"errored  {', '.join(f'{rows:,} {reason}' for reason, rows in status.error_reasons.items())}"


def _unfinished(status: RunStatus) -> str:
    """Rows count as in, kept or dropped when their shard is done."""
    rows = status.counts.rows_running
    return f"; {rows:,} scored in shards that are not done" if rows else ""


def _speed(status: RunStatus) -> str:
    pace = status.pace
    if status.word == "running":
        lately = f"{status.rows_per_second:,.0f} rows/s over the last {shown_duration(pace.seconds_lately)}"
        left = time_left(status)
        return f"{lately}{f'; {left} left' if left else ''}"
    return f"{status.rows_per_second:,.0f} rows/s over {shown_duration(pace.seconds)} of work"


def time_left(status: RunStatus) -> str:
    """For example `50 min to 1 h 10 min`. Empty if it is not known."""
    left = status.remaining
    if left is None:
        return ""
    low, high = shown_duration(left.low), shown_duration(left.high)
    if left.high < _FEW_SECONDS:
        return "seconds"
    return high if low == high else f"{low} to {high}"


def _spent(status: RunStatus) -> Iterator[str]:
    """The time that workers have held shards, and what that costs if a price is known."""
    left, seconds = status.remaining, status.counts.worker_seconds
    if seconds:
        coming = f", about {shown_duration(left.worker_seconds)} to come" if left else ""
        yield f"work     {shown_duration(seconds)} of all workers together{coming}"
    if status.cost:
        yield from _cost(status.cost)


def _cost(cost: Cost) -> Iterator[str]:
    unit = "$" if cost.price_from == LISTED else ""
    coming = f", about {unit}{cost.to_come:,.2f} to come" if cost.to_come is not None else ""
    rate = f"; {unit}{cost.per_million_rows:,.2f} per million rows" if cost.per_million_rows is not None else ""
    yield f"cost     {unit}{cost.so_far:,.2f} so far{coming}{rate}; starts and idle time are not counted"
    if cost.price_from == LISTED:
        yield from _list_prices(cost)


def _list_prices(cost: Cost) -> Iterator[str]:
    """By which list prices the cost was computed, and which devices have none."""
    priced = [
        f"{one.device} ${one.device_price:.2f} an hour for {shown_duration(one.device_seconds)}"
        for one in cost.devices
        if one.device_price is not None
    ]
    left_out = ", ".join(f"{one.device} ({shown_duration(one.device_seconds)})" for one in cost.left_out)
    but = f"; left out, since no price is known: {left_out}" if left_out else ""
    yield f"prices   {', '.join(priced)}: {LISTED}{but}"


def _at_work(status: RunStatus) -> Iterator[str]:
    """A line for each worker that has a shard of the run."""
    devices = {worker.name: worker.device for worker in status.workers}
    for shard in status.running[:_NAMED_WORKERS]:
        device = devices.get(shard.worker) or "silent"
        yield f"         {shard.worker} ({device}): {counted(shard.rows, 'row')} of {shard.name}{_of_attempt(shard)}"
    if len(status.running) > _NAMED_WORKERS:
        yield f"         and {len(status.running) - _NAMED_WORKERS:,} more"


def _of_attempt(shard: RunningShard) -> str:
    """For example `; 117 rows/s; 91% device, 6% tokenize; 41% of peak; last seen 40 s ago`."""
    again = f"; attempt {shard.attempt}" if shard.attempt > 1 else ""
    seen = f"; last seen {shown_duration(shard.seen_seconds)} ago" if shard.is_silent else ""
    if not shard.report:
        return f"{again}{seen}"
    total = sum(shard.report.seconds.values()) or 1.0
    spent = sorted(shard.report.seconds.items(), key=lambda phase: -phase[1])
    shares = ", ".join(f"{seconds / total:.0%} {phase}" for phase, seconds in spent if seconds >= _SHOWN_SHARE * total)
    return f"; {shard.report.rows_per_second:,.0f} rows/s; {shares}{_of_device(shard.report)}{again}{seen}"


def _of_device(report: AttemptReport) -> str:
    """What is known of `; 41% of peak, 63% of memory, 97% busy`."""
    shares = {"of peak": report.peak_share, "of memory": report.memory_share, "busy": report.busy_share}
    known = [f"{share:.0%} {what}" for what, share in shares.items() if share is not None]
    return f"; {', '.join(known)}" if known else ""


def _stored(status: RunStatus) -> str:
    return (
        f"; {decimal(status.counts.stored_bytes)} in {counted(status.counts.done, 'shard')}"
        if status.counts.done
        else ""
    )


def _waves(status: RunStatus) -> Iterator[str]:
    """Only an output that drops files without a commit has waves."""
    counts = status.counts
    if counts.last_wave_seconds is not None and not status.is_published:
        hours = max(counts.seconds / 3600, 1.0)  # at first, not more than there were
        yield (
            f"saved    by {counted(counts.waves, 'commit')}, {counts.waves / hours:.1f} an hour, the last "
            f"{shown_duration(counts.last_wave_seconds)} ago; published when all shards are done"
        )


def _workers(status: RunStatus) -> str:
    doing = [worker.activity for worker in status.workers]
    told = ", ".join(
        f"{doing.count(activity)} {activity}" for activity in ("busy", "ready", "loading") if activity in doing
    )
    if not told and status.machines and status.counts.open:
        return f"none yet; {machines_line(status.machines)}"
    return told or "none"


def _priority(status: RunStatus) -> str:
    return f", priority {status.steering.priority}" if status.steering.priority else ""


def _at_most(status: RunStatus) -> str:
    most = status.steering.max_workers
    return f"; at most {most:,} have shards at once" if most else ""
