"""Which runs need a person, and why, in a line each. `producer runs`, `producer status` and the Runs page show them."""

from collections.abc import Iterable, Iterator

from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from producer.status import Present, run_status
from producer.status.state import RunStatus
from producer.status.verdict import level, verdict

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
        try:
            yield run_status(ledger, run_id, present=present, is_of_this_machine=is_of_this_machine, most_failures=1)
        except NewerVersion:
            continue
