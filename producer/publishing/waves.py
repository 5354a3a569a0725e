"""Save the finished shards of a long run in waves. Otherwise the Hub would drop their files, which no commit names yet.

Knows nothing of how an output saves shards. Every finalizer that checks a run also checks for a due wave. The output
reports which shards are saved, so a wave is not repeated after a lost response or a crash.
"""

import logging
import time
from collections.abc import Sequence

from shardsift.fleet.errors import OutputDamaged
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt, Receipts
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.publishing.publish import send_back

_CHECKS_PER_WAVE = 4  # so a shard waits at most a quarter longer than `wave_seconds`
_LEAST_SECONDS = 60.0  # between two checks: the Hub allows about 128 commits an hour
_LEAST_SHARE = 100  # about this many checks in a large run, because each asks the Hub about every finished shard
logger = logging.getLogger(__name__)


def is_due(unsaved: Sequence[Receipt], settings: Settings, *, now: float) -> bool:
    """Return whether there are enough unsaved shards, or the oldest of them has waited long enough."""
    if not unsaved:
        return False
    oldest = min(receipt.provenance.finished_at for receipt in unsaved)
    return len(unsaved) >= settings.wave_shards or now - oldest >= settings.wave_seconds


class WaveWatch:
    """Decide from the number of finished shards when to check whether a wave is due.

    A restarted process loses this state, which costs one unnecessary check.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._checked: dict[str, tuple[int, float]] = {}  # run → done shards at the last check, and when that was

    def is_check_due(self, run_id: str, *, done: int, now: float) -> bool:
        """Return whether to check now, and if so, note the check. `now` may come from any monotonic clock."""
        if run_id in self._checked:
            then_done, then = self._checked[run_id]
            is_soon = now - then < self._settings.wave_seconds / _CHECKS_PER_WAVE
            has_few = abs(done - then_done) < max(self._settings.wave_shards, done // _LEAST_SHARE)
            if now - then < _LEAST_SECONDS or (is_soon and has_few):
                return False
        self._checked[run_id] = (done, now)
        return True


def save_due_waves(ledger: Ledger, run_id: str, settings: Settings) -> int:
    """Save the finished shards of a run if a wave is due. Returns how many were saved. May run twice.

    Queues shards again if the output has already dropped their files. Raises TransientError or ShardError from the output,
    such as PublishConflict if another finalizer saved at the same moment.
    """
    spec = ledger.spec(run_id)
    now, receipts = time.time(), Receipts(ledger.receipts(run_id))
    if not is_due(receipts, settings, now=now):  # not due even if none is saved: no need to ask the output
        return 0
    output = open_output(spec.output_uri, run_id)
    unsaved = output.unsaved(receipts)
    if not is_due(unsaved, settings, now=now):
        return 0
    saved = len(unsaved)
    try:
        output.save(unsaved)
    except OutputDamaged as damage:  # all others are saved
        send_back(ledger, run_id, damage, receipts)
        saved -= len(damage.damaged)
    logger.info("Run %s: saved %s until it is published", run_id, counted(saved, "shard"), extra={"run_id": run_id})
    return saved
