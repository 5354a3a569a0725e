"""What is wrong with a run, what it waits for, and the command that helps."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.ledger import Failure
from fleet.presence.announcements import machine_names
from fleet.process.durations import shown_duration
from fleet.process.wording import counted, first_of
from fleet.storage.inspection import lines_of
from producer.status.state import Checked, RunStatus

AFTER_FIXING = "After fixing the cause"  # begins the line with the command that goes on after a failure
_NAMED_SILENT = 5
_NAMED_STALLED = 3
_CHECKED = {
    Checked.SIZES: "Checked just now: every file is there and has its size. With --verify its sha256 is compared too.",
    Checked.SHA256: "Checked just now: every file is there and has its sha256.",
}


def what_next(status: RunStatus) -> list[str]:
    """The lines below the table: what is wrong, and the command that fixes it."""
    return [
        *_on_failures(status),
        *_on_retries(status),
        *_on_silent(status),
        *_on_stalled(status),
        *_on_publishing(status),
        *what_it_waits_for(status),
        *on_no_finalizer(status),
        *_on_refused(status),
    ]


def _on_failures(status: RunStatus) -> Iterator[str]:
    yield from failure_lines(status.failures)
    if status.failures and not status.is_published:
        them = "it" if status.counts.failed == 1 else "them"
        yield f"{AFTER_FIXING}, try {them} again: producer retry {status.run_id}"
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


def _on_stalled(status: RunStatus) -> Iterator[str]:
    """The watchdog of each ends its process in time, and another one goes on."""
    stalled = () if status.cancelled else status.stalled
    for shard in stalled[:_NAMED_STALLED]:
        yield (
            f"{shard.worker or 'A worker'} has made no progress for {shown_duration(shard.idle_seconds)}, in {shard.name}. If it "
            "hangs, its process is replaced after SHARDSIFT_STALL_SECONDS (default: 15 min), and its log says where it was."
        )
    if len(stalled) > _NAMED_STALLED:
        yield f"{counted(len(stalled) - _NAMED_STALLED, 'more worker')} without progress."


def _on_publishing(status: RunStatus) -> Iterator[str]:
    if status.is_published and status.damage:
        yield f"The output {status.output_uri} is not as it was published:"
        yield from (f"  {line}" for line in lines_of(status.findings))
        if any(finding.is_mendable for finding in status.findings):
            yield (
                "The command that started the run, with --verify, repairs this: it scores again what is lost, and "
                "nothing else."
            )
        if not all(finding.is_mendable for finding in status.damage):
            yield "Files that are not of this run are left alone. Remove them yourself."
    elif status.is_published and status.publication:
        yield f"Published: {status.publication.uri} {status.publication.commit}".rstrip()
        if status.checked:
            yield _CHECKED[status.checked]
        yield from (f"{edited}." for edited in status.findings)
        yield from _on_no_kept_row(status)
    elif status.publish_error and status.publish_failed:
        yield f"It cannot be published: {status.publish_error}"
        yield f"{AFTER_FIXING}: producer finalize {status.run_id}"
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
        case "record lost":
            yield "Redis has lost a part of this run's record. Run the same command again: what is done is kept."
        case "loading":
            yield f"{loading_line(status)}."
        case "stopped":
            yield "No worker serves this run any more. The same `producer run` command goes on where it stopped."
        case "stalled" if status.blocked:
            yield status.blocked
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


def loading_line(status: RunStatus) -> str:
    """For example `Loading the model (1 worker, 35 s)`."""
    longest = max(worker.activity_seconds for worker in status.loading)
    return f"Loading the model ({counted(len(status.loading), 'worker')}, {shown_duration(longest)})"


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


def on_no_finalizer(status: RunStatus) -> Iterator[str]:
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


# Failed attempts in a few lines, grouped by cause, so that one mistake in a hundred shards reads as one.

_MOST_CAUSES = 5
_NAMED_SHARDS = 5
_TRACEBACK_LINES = 8
_PATH = re.compile(r"\S*/\S*")
_NUMBER = re.compile(r"\b(?![45]\d\d\b)\d[\d,.]*\b")  # an HTTP status tells causes apart: 403 is not 503
_ERROR = re.compile(r"[\w.]+: ")  # begins the message below a traceback
_OURS = ("fleet.", "worker.")  # modules whose errors say enough without a traceback


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Shards with the same error, apart from names, paths and numbers in it."""

    failures: tuple[Failure, ...]

    @property
    def first(self) -> Failure:
        return self.failures[0]

    @property
    def others(self) -> list[str]:
        return [failure.shard for failure in self.failures[1:]]

    @property
    def traceback(self) -> list[str]:
        return unexpected_traceback(self.first)


def unexpected_traceback(failure: Failure) -> list[str]:
    """The last lines of its traceback. None if the error is one of ours, or if a process died without one."""
    lines = failure.traceback.rstrip().splitlines()
    errors = [line for line in lines if _ERROR.match(line)]
    return [] if not errors or errors[-1].startswith(_OURS) else lines[-_TRACEBACK_LINES:]


def causes_of(failures: Sequence[Failure]) -> list[Cause]:
    """The cause of most shards first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(_without_details(failure), []).append(failure)
    causes = [Cause(failures=tuple(group)) for group in groups.values()]
    return sorted(causes, key=lambda cause: -len(cause.failures))


def failure_lines(failures: Sequence[Failure]) -> Iterator[str]:
    """What failed, cause by cause, with one traceback of an unexpected error."""
    causes = causes_of(failures)
    for cause in causes[:_MOST_CAUSES]:
        yield from _failed(cause)
    yield from _more(causes)
    yield from _one_traceback(causes)


def retry_lines(retries: Sequence[Failure]) -> Iterator[str]:
    """What went wrong with shards that are tried again by themselves."""
    causes = causes_of(retries)
    wait = "waits" if len(retries) == 1 else "wait"
    yield f"{counted(len(retries), 'shard')} {wait} for another attempt. {_last_error(causes[0])}"
    for cause in causes[1:_MOST_CAUSES]:
        yield f"  {_last_error(cause)}"
    yield from _more(causes)
    yield from _one_traceback(causes)


def _failed(cause: Cause) -> Iterator[str]:
    first = cause.first
    if not cause.others:
        yield f"Shard {first.shard} failed{_by(first)}: {first.error}"
        return
    shards = counted(len(cause.failures), "shard")
    yield f"{shards} failed with one error. {first.shard}{_by(first)}: {first.error}"
    yield f"  The others: {first_of(cause.others, _NAMED_SHARDS)}"


def _last_error(cause: Cause) -> str:
    how_often = f" ({counted(len(cause.failures), 'shard')})" if cause.others else ""
    first = cause.first
    return f"Shard {first.shard} on {first.worker}, attempt {first.attempts}: {first.error}{how_often}"


def _by(failure: Failure) -> str:
    """The finalizer, which finds damaged outputs, has no worker's name."""
    return f" on {failure.worker} (attempt {failure.attempts})" if failure.worker else ""


def _more(causes: Sequence[Cause]) -> Iterator[str]:
    rest = causes[_MOST_CAUSES:]
    if rest:
        shards = sum(len(cause.failures) for cause in rest)
        yield f"And {counted(len(rest), 'other error')} of {counted(shards, 'shard')}: see --json."


def _one_traceback(causes: Sequence[Cause]) -> Iterator[str]:
    """Of the most frequent unexpected error."""
    unexpected = next((cause for cause in causes if cause.traceback), None)
    if unexpected:
        yield f"  The traceback of {unexpected.first.shard} ends with these lines; --json has it whole:"
        yield from (f"    {line}" for line in unexpected.traceback)


def _without_details(failure: Failure) -> str:
    """The error with its shard, paths and numbers masked."""
    masked = re.sub(rf"(?<!\w){re.escape(failure.shard)}(?!\w)", "…", failure.error)
    return _NUMBER.sub("#", _PATH.sub("…", masked))
