"""Waves: shards of a long run are saved while it runs, where the output would lose their files before its end.

Knows nothing of how an output saves them. A wave is looked for by every finalizer that is asked to look at a run; what
is saved already the output itself tells, so a wave whose answer was lost, or that died midway, is not made twice.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

from fleet.counted import counted
from fleet.errors import OutputDamaged, PublishConflict
from fleet.ledger import Ledger
from fleet.receipt import Receipt
from fleet.settings import Settings
from fleet.storage.opening import open_output, staged_files_stay
from fleet.storage.output import Output
from producer.finalizer.publish import send_back

_LOOKS = 5  # each conflict means that another finalizer saved; look again, and then leave it to a later sweep
_LOOKS_A_WAVE = 4  # so that no shard waits longer than a quarter more than it should
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WaveRule:
    """When unsaved shards are saved: when they are so many, or when the oldest is so old."""

    shards: int
    seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(shards=settings.wave_shards, seconds=settings.wave_seconds)

    def is_due(self, unsaved: Sequence[Receipt], *, now: float) -> bool:
        if not unsaved:
            return False
        oldest = min(receipt.provenance.finished_at for receipt in unsaved)
        return len(unsaved) >= self.shards or now - oldest >= self.seconds

    def waves(self, unsaved: Sequence[Receipt]) -> list[Sequence[Receipt]]:
        """Cut into waves of about equal size, each at least `shards` and less than twice that where there are so many."""
        size = ceil(len(unsaved) / max(1, len(unsaved) // self.shards))
        return [unsaved[start : start + size] for start in range(0, len(unsaved), size)]


class WaveWatch:
    """Says when to look whether a wave of a run is due, from how many of its shards are done.

    What it forgets, in a process that starts anew, costs one look that finds nothing.
    """

    def __init__(self, rule: WaveRule) -> None:
        self._rule = rule
        self._looks: dict[str, tuple[int, float]] = {}  # run → done shards at the last look, and when that was

    def wants_look(self, run_id: str, *, done: int, now: float) -> bool:
        """Whether to look now; counts as a look if so. `now` is of any clock that only goes forward."""
        if run_id in self._looks:
            then_done, then = self._looks[run_id]
            if abs(done - then_done) < self._rule.shards and now - then < self._rule.seconds / _LOOKS_A_WAVE:
                return False
        self._looks[run_id] = (done, now)
        return True


def save_due_waves(ledger: Ledger, run_id: str, rule: WaveRule) -> int:
    """Save the done shards of a run if a wave of them is due; returns how many those were. May run twice.

    Shards whose files the output has dropped already are queued again. Raises TransientError or ShardError from the
    output, PublishConflict when others keep saving.
    """
    spec = ledger.spec(run_id)
    if staged_files_stay(spec.output_uri):
        return 0
    now, receipts = time.time(), list(ledger.receipts(run_id))
    if not rule.is_due(receipts, now=now):  # not even if nothing were saved: spares the output the question
        return 0
    output = open_output(spec.output_uri, run_id)
    unsaved = output.unsaved(receipts)
    if not rule.is_due(unsaved, now=now):
        return 0
    dropped: dict[str, str] = {}
    for wave in rule.waves(unsaved):
        dropped |= _save(output, wave)
    if dropped:
        send_back(ledger, run_id, OutputDamaged(dropped), receipts)
    logger.info("Run %s: saved %s until it is published", run_id, counted(len(unsaved) - len(dropped), "shard"))
    return len(unsaved) - len(dropped)


def _save(output: Output, wave: Sequence[Receipt]) -> dict[str, str]:
    """What of the wave is lost, by shard; all else is saved."""
    for _ in range(_LOOKS):
        try:
            output.save(wave)
            return {}
        except OutputDamaged as damage:
            return damage.damaged
        except PublishConflict as conflict:
            logger.info("%s Looking again.", conflict)
    raise PublishConflict("Others keep saving shards of the same run; a later sweep tries again.")
