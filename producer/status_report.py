"""The status of a run for people: a table of runs, the lines about one, and what to do next."""

import math
from collections.abc import Iterator
from typing import Literal

from rich.filesize import decimal
from rich.table import Table

from fleet.attempt_report import AttemptReport
from fleet.counted import counted, first_of
from fleet.durations import shown_duration
from fleet.ledger import RunningShard
from fleet.machines import machine_names, machines_line
from fleet.storage.inspection import lines_of
from producer.cost import LISTED, Cost
from producer.failure_lines import failure_lines, retry_lines
from producer.score_lines import kept_line, spread_line
from producer.status import Checked, Present, RunStatus

Level = Literal["good", "doubtful", "bad"]

_NAMED_WORKERS = 16
_NAMED_SILENT = 5
_BAD = {"failed", "stalled", "damaged"}
_DOUBTFUL = {"half enqueued", "paused", "stopped", "cancelled", "published without its failed shards"}
_FEW_SECONDS = 10.0
_SHOWN_SHARE = 0.05  # of the time of an attempt
_BAR_WIDTH = 40
_CHECKED = {
    Checked.SIZES: "Checked just now: every file is there and has its size. With --verify its sha256 is compared too.",
    Checked.SHA256: "Checked just now: every file is there and has its sha256.",
}


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


def present_line(present: Present) -> str:
    """For example `2 workers; 3 machines, 1 of them free: gpu-box/4711`."""
    workers = counted(len(present.workers), "worker")
    return f"{workers}; {machines_line(present.machines)}" if present.machines else workers


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


def verdict(status: RunStatus) -> str:
    """One line, such as `on track, 50 min to 1 h 10 min left`, or what is wrong and the command that helps."""
    if status.is_published:
        return status.word
    if status.word != "running":
        said = next(iter([*what_it_waits_for(status), *what_next(status)]), None)
        return f"{status.word}: {said}" if said else status.word
    but, left = list(_troubles(status)), time_left(status)
    return f"{'on track' if not but else 'running'}{f', {left} left' if left else ''}{''.join(f'; {what}' for what in but)}"


def _troubles(status: RunStatus) -> Iterator[str]:
    """What a person should know of a run that goes on nevertheless."""
    if status.counts.failed:
        yield f"{counted(status.counts.failed, 'shard')} failed"
    if status.retries:
        yield f"{counted(len(status.retries), 'shard')} to try again"
    if status.silent:
        yield f"{counted(len(status.silent), 'worker')} silent"
    if status.lacks_finalizer:
        yield "no finalizer is running"


def level(status: RunStatus) -> Level:
    """How much the run needs a person. A doubtful one goes on, or waits for something that a person decides."""
    if status.word in _BAD:
        return "bad"
    is_doubtful = status.word in _DOUBTFUL or status.counts.failed or status.silent
    is_doubtful = is_doubtful or status.is_unserved or status.lacks_finalizer
    return "doubtful" if is_doubtful or (status.publish_error and not status.is_published) else "good"


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
    """The time that workers have held shards, or what that costs."""
    left, cost, seconds = status.remaining, status.cost, status.counts.worker_seconds
    if cost:
        unit = "$" if cost.price_from == LISTED else ""
        coming = f", about {unit}{cost.to_come:,.2f} to come" if cost.to_come is not None else ""
        rate = f"; {unit}{cost.per_million_rows:,.2f} per million rows" if cost.per_million_rows is not None else ""
        yield f"cost     {unit}{cost.so_far:,.2f} so far{coming}{rate}; starts and idle time are not counted"
        yield from _list_prices(cost)
    elif seconds:
        coming = f", about {shown_duration(left.worker_seconds)} to come" if left else ""
        yield f"work     {shown_duration(seconds)} of all workers together{coming}"


def _list_prices(cost: Cost) -> Iterator[str]:
    """By which prices the cost was computed, unless somebody gave one, and which devices have none."""
    priced = [
        f"{one.device} ${one.device_price:.2f} an hour for {shown_duration(one.device_seconds)}"
        for one in cost.devices
        if one.device_price is not None
    ]
    left_out = ", ".join(f"{one.device} ({shown_duration(one.device_seconds)})" for one in cost.left_out)
    but = f"; left out, since no price is known: {left_out}" if left_out else ""
    if priced:
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


def loading_line(status: RunStatus) -> str:
    """For example `Loading the model (1 worker, 35 s)`."""
    longest = max(worker.activity_seconds for worker in status.loading)
    return f"Loading the model ({counted(len(status.loading), 'worker')}, {shown_duration(longest)})"


def what_next(status: RunStatus) -> list[str]:
    """The lines below the table: what is wrong, and the command that fixes it."""
    return [
        *_on_failures(status),
        *_on_retries(status),
        *_on_silent(status),
        *_on_publishing(status),
        *what_it_waits_for(status),
        *_on_no_finalizer(status),
        *_on_refused(status),
    ]


def _on_failures(status: RunStatus) -> Iterator[str]:
    yield from failure_lines(status.failures)
    if status.failures and not status.is_published:
        them = "it" if status.counts.failed == 1 else "them"
        yield f"When that is mended, try {them} again: producer retry {status.run_id}"
        if status.counts.done and not status.counts.open:
            yield f"Or publish the others without {them}: producer finalize {status.run_id}"


def _on_retries(status: RunStatus) -> Iterator[str]:
    """A run whose shards all end with the same error does not advance, although its workers are busy."""
    if status.retries and not status.cancelled:
        yield from retry_lines(status.retries)


def _on_silent(status: RunStatus) -> Iterator[str]:
    """Nothing to type: the ledger takes the shards back."""
    silent = status.silent
    if not silent or status.cancelled:
        return
    least, longest = min(one.seen_seconds for one in silent), max(one.lease_seconds_left for one in silent)
    when = f"in {shown_duration(longest)}" if longest else "now"
    if len(silent) == 1:
        (one,) = silent
        yield (
            f"{one.worker or 'A worker'} has given no sign of life for {shown_duration(least)}. Its shard {one.name} goes "
            f"to another worker when the lease ends, {when}."
        )
        return
    yield (
        f"{len(silent):,} workers have given no sign of life for {shown_duration(least)} or more: "
        f"{first_of([one.worker for one in silent], _NAMED_SILENT)}. Their shards go to other workers when the leases "
        f"end, the last {when}."
    )


def _on_publishing(status: RunStatus) -> Iterator[str]:
    if status.is_published and status.findings:
        yield f"The output {status.output_uri} is not as it was published:"
        yield from (f"  {line}" for line in lines_of(status.findings))
        if any(finding.is_mendable for finding in status.findings):
            yield (
                "The command that started the run, with --verify, repairs this: it scores again what is lost, and "
                "nothing else."
            )
        if not all(finding.is_mendable for finding in status.findings):
            yield "Files that are not of this run are left alone. Remove them yourself."
    elif status.is_published and status.publication:
        yield f"Published: {status.publication.uri} {status.publication.commit}".rstrip()
        if status.checked:
            yield _CHECKED[status.checked]
        yield from _on_no_kept_row(status)
    elif status.publish_error and status.publish_failed:
        yield f"It cannot be published: {status.publish_error}"
        yield f"When that is mended: producer finalize {status.run_id}"
    elif status.publish_error:
        yield f"Publishing has not succeeded yet, and is tried again: {status.publish_error}"


def _on_no_kept_row(status: RunStatus) -> Iterator[str]:
    counts = status.counts
    if not counts.rows_in or counts.rows_kept:
        return
    if not counts.rows_dropped:
        yield "No row was kept, because none has a score: all are errored."
        return
    yield (
        "No row was kept: the filter drops every row that has a score. The scores are stored, so another filter needs no "
        f"model: producer refilter {status.run_id} --output … --min-score … (or --where …)"
    )


def what_it_waits_for(status: RunStatus) -> Iterator[str]:
    """What must happen before the run goes on. Nothing if it runs or has ended."""
    match status.word:
        case "cancelled":
            yield f"Take it up again: producer retry {status.run_id}"
        case "paused":
            why = f": {status.paused}" if status.paused else ""
            yield f"It is paused{why}. Resume it: producer resume {status.run_id}{_higher_limit(status)}"
        case "half enqueued":
            yield "Enqueueing was interrupted. Run the same command again to finish it."
        case "loading":
            yield f"{loading_line(status)}."
        case "stopped":
            yield "No worker serves this run any more. The same `producer run` command goes on where it stopped."
        case "stalled" if status.serving:
            count, verb = counted(len(status.serving), "worker"), "serves" if len(status.serving) == 1 else "serve"
            yield f"{count} {verb} this run, but {_idle(status)}. Look at the logs: {_names(status)}."
        case "queued" if not status.workers and status.machines:
            yield _on_machines(status)
        case "queued" if not status.workers and status.is_of_this_machine:
            yield "No worker has served this run yet. The same `producer run` command starts it."
        case "stalled" | "queued" if not status.workers:
            yield from _on_unable(status)
            yield f"No worker serves this run. Start one: {status.worker_command}"
            yield from _on_workers_elsewhere(status)
        case "queued":
            yield f"Its workers are at other runs: {', '.join(sorted({str(w.run_id) for w in status.serving}))}."


def _on_workers_elsewhere(status: RunStatus) -> Iterator[str]:
    """Why workers that are there do not help: they were started for certain models or a --dtype."""
    if status.workers_elsewhere == 1:
        yield "The one worker of this fleet serves another model or dtype."
    elif status.workers_elsewhere:
        yield f"The {status.workers_elsewhere:,} workers of this fleet serve other models or dtypes."


def _higher_limit(status: RunStatus) -> str:
    """What `resume` needs too, if the run has cost what it may: twice the limit, or more if the cost is far above it."""
    limit, cost = status.steering.max_cost, status.steering.cost(status.counts.worker_seconds)
    if limit is None or cost is None or cost < limit:
        return ""
    return f" --max-cost {2 * limit if cost < 2 * limit else math.ceil(2 * cost):g}"


def _on_machines(status: RunStatus) -> str:
    free = [machine.name for machine in status.machines if machine.free]
    if free:
        return f"{free[0]} starts a worker for this run within seconds."
    return f"The workers of {machine_names(status.machines)} are at other runs. One comes to this run when it is free."


def _on_unable(status: RunStatus) -> Iterator[str]:
    """The machines on which no worker could serve the run, and the reason of the first of them."""
    if not status.unable:
        return
    names, queue = machine_names(status.unable), status.queue
    reason = status.unable[0].avoids[queue].rstrip(".")
    yield f"No worker of {names} could serve it: {reason}. Tried again after ten minutes, or when `worker start` is restarted."


def _on_no_finalizer(status: RunStatus) -> Iterator[str]:
    if status.lacks_finalizer:
        yield (
            "No finalizer is running: no finished run is published, and no lost shard is sent again. "
            "Start one: producer finalizer"
        )


def _idle(status: RunStatus) -> str:
    idle = status.pace.idle_seconds
    return "none has scored a row" if idle is None else f"no row was scored for {shown_duration(idle)}"


def _names(status: RunStatus) -> str:
    return ", ".join(worker.name for worker in status.serving[:5])


def _on_refused(status: RunStatus) -> Iterator[str]:
    if status.refused:
        refused = "; ".join(f"{what} ({times:,})" for what, times in status.refused.items())
        yield f"Refused or repaired lately, in all runs: {refused}."
