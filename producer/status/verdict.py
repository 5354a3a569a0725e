"""Whether all is well with a run: one line that says so or names the command that helps, and how much it needs a person."""

from collections.abc import Iterable, Iterator
from typing import Literal

from fleet.ledger import Ledger
from fleet.process.durations import shown_duration
from fleet.process.wording import counted
from producer.status import Present, run_status
from producer.status.advice import AFTER_FIXING, on_no_finalizer, what_it_waits_for, what_next
from producer.status.facts import time_left
from producer.status.state import RunStatus

Level = Literal["good", "doubtful", "bad"]

_BAD = {"failed", "stalled", "damaged", "record lost"}
_TOLD_SECONDS = 300.0
_DOUBTFUL = {"half enqueued", "paused", "stopped", "cancelled", "published without its failed shards"}


def verdict(status: RunStatus) -> str:
    """One line, such as `on track, 50 min to 1 h 10 min left`, or what is wrong and the command that helps."""
    if status.is_published:
        return status.word
    if status.word != "running":
        lines = [*what_it_waits_for(status), *on_no_finalizer(status), *what_next(status)]
        said = lines[:1]
        if status.word == "failed":
            said += [line for line in lines if line.startswith(AFTER_FIXING)]
        return f"{status.word}: {' '.join(said)}" if said else status.word
    but, left = list(troubles(status)), time_left(status)
    return f"{'on track' if not but else 'running'}{f', {left} left' if left else ''}{''.join(f'; {what}' for what in but)}"


def troubles(status: RunStatus) -> Iterator[str]:
    """What a person should know of a run that goes on nevertheless."""
    if status.counts.failed:
        yield f"{counted(status.counts.failed, 'shard')} failed"
    if status.retries:
        yield f"{counted(len(status.retries), 'shard')} to try again"
    if status.silent:
        yield f"{counted(len(status.silent), 'worker')} silent"
    died = status.counts.last_death_seconds
    if died is not None and died < _TOLD_SECONDS:
        yield f"a worker died {shown_duration(died)} ago"
    if status.stalled:
        yield f"{counted(len(status.stalled), 'worker')} without progress"
    if status.lacks_finalizer:
        yield "no finalizer is running"


def level(status: RunStatus) -> Level:
    """How much the run needs a person. A doubtful one goes on, or waits for something that a person decides."""
    if status.word in _BAD:
        return "bad"
    is_doubtful = status.word in _DOUBTFUL or status.counts.failed or status.silent or status.stalled
    is_doubtful = is_doubtful or status.is_unserved or status.lacks_finalizer
    return "doubtful" if is_doubtful or (status.publish_error and not status.is_published) else "good"


# Which runs need a person, and why, in a line each. `producer runs`, `producer status` and the Runs page show them.

_LEFT_ALONE = {"cancelled", "published without its failed shards"}  # a person decided that
_LOOKED_AT = 20  # other runs, the newest


def why_a_person(status: RunStatus) -> str | None:
    """What is wrong and the command that helps. None for a run that is on its way, or where somebody left it."""
    return None if level(status) == "good" or status.word in _LEFT_ALONE else verdict(status)


def attention_lines(statuses: Iterable[RunStatus]) -> Iterator[str]:
    for status in statuses:
        if why := why_a_person(status):
            yield f"{status.run_id} is {why}"


def other_runs(ledger: Ledger, run_id: str, *, is_of_this_machine: bool) -> list[str]:
    """The lines of the newest runs beside this one, for a person who named none."""
    others = [other for other in ledger.run_ids() if other != run_id][:_LOOKED_AT]
    present = Present.read(ledger.redis) if others else None
    return list(attention_lines(_readable(ledger, others, present, is_of_this_machine)))


def _readable(
    ledger: Ledger, run_ids: Iterable[str], present: Present | None, is_of_this_machine: bool
) -> Iterator[RunStatus]:
    for run_id in run_ids:
        yield run_status(ledger, run_id, present=present, is_of_this_machine=is_of_this_machine, most_failures=1)
