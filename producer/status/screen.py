"""What `producer status` prints: the verdict, the facts, and what to do."""

from collections.abc import Iterator

from producer.status.advice import what_next
from producer.status.facts import status_lines
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
