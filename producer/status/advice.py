"""Judge a run: whether all is well, what is wrong, what the run waits for, and the command that helps."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Literal

from shardsift.fleet.ledger import RunningShard
from shardsift.fleet.presence.announcements import ALIVE_SECONDS, machine_names
from shardsift.fleet.process.wording import counted, first_of, place_taken, shown_duration
from shardsift.fleet.storage.inspection import lines_of
from shardsift.producer.status.failure_causes import causes_of, failure_lines, retry_lines
from shardsift.producer.status.view import MOST_RETRIES, Checked, RunStatus

Level = Literal["good", "doubtful", "bad"]

_BAD = {"failed", "stalled", "damaged", "record lost"}
_DOUBTFUL = {"half enqueued", "paused", "stopped", "cancelled", "published without its failed shards"}
_LEFT_ALONE = {"cancelled", "published without its failed shards"}  # a person has decided this
_AFTER_FIXING = "After fixing the cause"  # begins the line with the command that continues after a failure
_NAMED_WORKERS = 5
_FOR = f" for {ALIVE_SECONDS:.0f} s"
_CHECKED = {
    Checked.SIZES: "Checked just now: every file is there and has its size. With --verify its sha256 is compared too.",
    Checked.SHA256: "Checked just now: every file is there and has its sha256.",
}


def verdict(status: RunStatus) -> str:
    """Return one line: `on track, 50 min to 1 h 10 min left`, or what is wrong and the command that helps."""
    if status.is_published:
        return status.word
    if status.no_writes:
        return f"{status.word}: {status.no_writes}"
    if status.word != "running":
        lines = [*what_it_waits_for(status), *_on_no_finalizer(status), *what_next(status)]
        said = lines[:1]
        if status.word == "failed":
            said = [*_failed_in_short(status), *(line for line in lines if line.startswith(_AFTER_FIXING))]
        return f"{status.word}: {' '.join(said)}" if said else status.word
    but, left = list(troubles(status)), status.time_left
    return f"{'on track' if not but else 'running'}{f', {left} left' if left else ''}{''.join(f'; {what}' for what in but)}"


def _failed_in_short(status: RunStatus) -> Iterator[str]:
    """Say how many shards failed, and the cause if there is only one.

    Omits the number if `status.failures` has all failures and they have one cause, because the line of the cause gives it.
    """
    has_several = len(causes_of(status.failures)) > 1
    if has_several or len(status.failures) < status.counts.failed:
        yield f"{counted(status.counts.failed, 'shard')} failed."
    if not has_several:
        yield from islice(chain(_on_failures(status), _on_publishing(status)), 1)


def troubles(status: RunStatus) -> Iterator[str]:
    """Yield what a person should know about a running run, such as failed shards or a missing finalizer."""
    if status.counts.failed:
        yield f"{counted(status.counts.failed, 'shard')} failed"
    if status.retries:
        least = "at least " if len(status.retries) == MOST_RETRIES else ""
        yield f"{least}{counted(len(status.retries), 'shard')} to try again"
    if status.counts.failed_attempts:
        when = " since a shard was done" if status.counts.done else ", and no shard is done yet"
        yield f"{counted(status.counts.failed_attempts, 'attempt')} failed{when}"
    if status.silent:
        yield f"no report on {counted(len(status.silent), 'shard')} for {_shortest(one.seen_seconds for one in status.silent)}"
    if status.stalled:
        idle = _shortest(one.idle_seconds for one in status.stalled)
        yield f"no progress on {counted(len(status.stalled), 'shard')} for {idle}"
    if status.lacks_finalizer:
        yield "no finalizer is seen"


def level(status: RunStatus) -> Level:
    """Rate how urgently the run needs a person. A `doubtful` run continues, or waits for a person's decision."""
    if status.word in _BAD:
        return "bad"
    is_doubtful = (
        bool(status.no_writes) or status.word in _DOUBTFUL or status.counts.failed or status.silent or status.stalled
    )
    is_doubtful = is_doubtful or status.is_unserved or status.lacks_finalizer or status.is_trying_again
    return "doubtful" if is_doubtful or (status.publish_error and not status.is_published) else "good"


def why_a_person(status: RunStatus) -> str | None:
    """Return the verdict if the run needs a person. None if it continues by itself, or if a person has ended it."""
    return None if level(status) == "good" or status.word in _LEFT_ALONE else verdict(status)


def attention_lines(statuses: Iterable[RunStatus]) -> Iterator[str]:
    for status in statuses:
        if why := why_a_person(status):
            yield f"{status.run_id} is {why}"


def what_next(status: RunStatus) -> list[str]:
    """Return the lines below the table of `producer status`: what is wrong, and the command that fixes it."""
    return [
        *_on_failures(status),
        *(() if status.cancelled or status.word == "retrying" else retry_lines(status.retries)),
        *_on_silent(status),
        *_on_stalled(status),
        *_on_publishing(status),
        *what_it_waits_for(status),
        *_on_no_finalizer(status),
        *_on_refused(status),
    ]


def _on_failures(status: RunStatus) -> Iterator[str]:
    yield from failure_lines(status.failures)
    if status.failures and not (status.is_published or status.cancelled):
        them = "it" if status.counts.failed == 1 else "them"
        yield f"{_AFTER_FIXING}, try {them} again: producer retry {status.run_id}"
        if status.counts.done and not status.counts.open:
            yield f"Or publish the others without {them}: producer finalize {status.run_id}"


def _on_silent(status: RunStatus) -> Iterator[str]:
    """Describe silent shards. Suggests no command, because their leases expire."""
    silent = status.silent
    if silent and not status.cancelled:
        yield (
            f"No report for {_shortest(one.seen_seconds for one in silent)} from {_workers_and_shards(silent)}. "
            f"Without one, {_leases_end(silent)}, and the attempt counts as a crash."
        )


def _leases_end(shards: Sequence[RunningShard]) -> str:
    """Say when leases end, for example `the lease ends in 40 s`."""
    longest = max(one.lease_seconds_left for one in shards)
    leases, end = ("the lease", "ends") if len(shards) == 1 else ("the leases", "end")
    return f"{leases} {end} {f'in {shown_duration(longest)}' if longest else 'now'}"


def _shortest(seconds: Iterable[float]) -> str:
    return shown_duration(min(seconds))


def _on_stalled(status: RunStatus) -> Iterator[str]:
    """Describe stalled shards. Suggests no command, because a watchdog ends each process that hangs."""
    stalled = status.stalled
    if stalled and not status.cancelled:
        yield (
            f"No progress for {_shortest(one.idle_seconds for one in stalled)} from {_workers_and_shards(stalled)}. "
            "If a process hangs, it is replaced after SHARDSIFT_STALL_SECONDS (default: 15 min), and its log says where it was."
        )


def _workers_and_shards(shards: Sequence[RunningShard]) -> str:
    return first_of([f"{one.worker or 'a worker'} ({one.name})" for one in shards], _NAMED_WORKERS)


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
        if not status.cancelled:
            yield f"{_AFTER_FIXING}: producer finalize {status.run_id}"
    elif status.publish_error and not status.cancelled:
        again = ", and is tried again" if status.finalizers else ""
        yield f"Publishing has not succeeded yet{again}: {status.publish_error}"


def _on_no_kept_row(status: RunStatus) -> Iterator[str]:
    counts = status.counts
    if not counts.rows_in or counts.rows_kept:
        return
    if not counts.rows_dropped:
        yield "No row was kept, because none has a score: all are errored."
        return
    if (status.where or "").strip().lower() == "false":
        yield (
            f"The scores are published, and no rows. To choose rows by them: producer refilter {status.run_id} --output … "
            "--keep-top 10% (or --where …)"
        )
        return
    yield (
        "No row was kept: the filter drops every row that has a score. The scores are stored, so another filter needs no "
        f"model: producer refilter {status.run_id} --output … --min-score … (or --where …)"
    )


def what_it_waits_for(status: RunStatus) -> Iterator[str]:
    """Say what keeps the run from going on, and usually the command that helps. Empty if nothing does."""
    if status.no_writes:
        yield status.no_writes
        return
    match status.word:
        case "cancelled" if status.replaced_by:
            yield place_taken(status.replaced_by)
        case "cancelled":
            yield f"Take it up again: producer retry {status.run_id}"
        case "paused":
            why = f": {status.paused}" if status.paused else ""
            yield f"It is paused{why}. {_higher_limit(status)}Resume it: producer resume {status.run_id}"
        case "half enqueued":
            yield "Enqueueing has not finished. If its command has ended, run it again."
        case "record lost":
            yield "Redis has lost a part of this run's record. Run the same command again: what is done is kept."
        case "loading":
            yield f"{loading_line(status)}."
        case "stopped":
            yield f"{_on_no_worker(status)} Run the command that started it again: it goes on where it stopped."
        case "retrying":
            yield from retry_lines(status.retries)
        case "stalled" if status.serving:
            count, verb = counted(len(status.serving), "worker"), "serves" if len(status.serving) == 1 else "serve"
            names = first_of([worker.name for worker in status.serving], _NAMED_WORKERS)
            yield f"{count} {verb} this run, but {_idle(status)}. Look at the logs: {names}."
        case "queued" if not status.workers and status.machines:
            yield _on_machines(status)
        case "stalled" | "queued" if not status.workers:
            yield from why_unable(status)
            yield f"{_on_no_worker(status)} Start one: {status.worker_command}"
            if status.workers_elsewhere:
                yield f"Workers of this fleet that serve other models or dtypes: {status.workers_elsewhere:,}."
            yield from _on_format(status)
        case "queued":
            others = sorted({str(worker.run_id) for worker in status.serving})
            yield f"All its workers are busy with other runs: {', '.join(others)}."


def _on_no_worker(status: RunStatus) -> str:
    """Say that no worker is seen and, if workers hold shards, when the leases end.

    Such a worker may still run, without a connection to Redis.
    """
    if not status.running:
        return "No worker serves this run."
    return f"No worker for this run is seen; {_leases_end(status.running)}."


def loading_line(status: RunStatus) -> str:
    """Say what workers do before they are ready, for example `Loading the model (1 worker, 35 s)`."""
    longest = max(worker.activity_seconds for worker in status.loading)
    doing = "Starting" if status.scores_are_stored else "Loading the model"
    return f"{doing} ({counted(len(status.loading), 'worker')}, {shown_duration(longest)})"


def _on_format(status: RunStatus) -> Iterator[str]:
    if status.counts.open and status.number_format not in (None, "float32"):
        yield f"Its scores so far are in {status.number_format}. A worker without this format is refused."


def _higher_limit(status: RunStatus) -> str:
    """Return the command that raises the cost limit, needed before a resume. Empty if the cost is below the limit."""
    limit, cost = status.steering.max_cost, status.steering.cost(status.counts.worker_seconds)
    if limit is None or cost is None or cost < limit:
        return ""
    return f"Raise its limit: producer set {status.run_id} --max-cost {math.ceil(2 * cost)}. "


def _on_machines(status: RunStatus) -> str:
    if free := [machine for machine in status.machines if machine.free]:
        return f"A worker of {machine_names(free)} is free for this run, and not started yet."
    return f"No worker of {machine_names(status.machines)} is free yet."


def why_unable(status: RunStatus) -> Iterator[str]:
    """Say why live machines do not serve the run: their model folder has other files, or a worker failed there."""
    if status.other_models:
        yield (
            f"The model {status.other_models[0]} is not as it was when this run was enqueued. Restore its files if they have "
            "changed and restart that `worker start`, or cancel this run and enqueue it again."
        )
    if not status.unable:
        return
    names, queue = machine_names(status.unable), status.queue
    reason = status.unable[0].avoids[queue].rstrip(".")
    yield f"No worker of {names} could serve it: {reason}. Tried again after ten minutes, or when `worker start` is restarted."


def _on_no_finalizer(status: RunStatus) -> Iterator[str]:
    if not status.lacks_finalizer or status.no_writes:
        return
    if status.is_of_this_machine:
        stop = (
            "Stop the command that started it, if it still runs, and run it"
            if status.machines
            else "Run the command that started it"
        )
        yield f"No finalizer is seen{_FOR}, so nothing is published. {stop} again: it goes on."
    else:
        none_pauses = "" if status.steering.max_cost is None else " --max-cost pauses no run meanwhile."
        yield (
            f"No finalizer is seen{_FOR}: no finished run is published, and no lost message is sent again.{none_pauses} "
            "Start one, or restart one that hangs: producer finalizer"
        )


def _idle(status: RunStatus) -> str:
    idle = status.pace.idle_seconds
    return "no row of it was scored yet" if idle is None else f"no row was scored for {shown_duration(idle)}"


def _on_refused(status: RunStatus) -> Iterator[str]:
    if status.refused:
        refused = "; ".join(f"{what} ({times:,})" for what, times in status.refused.items())
        yield f"Refused or repaired lately, in all runs: {refused}."
