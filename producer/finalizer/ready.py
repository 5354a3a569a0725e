"""Find the runs that are ready, and publish them; of others, save finished shards that have waited too long."""

import logging
import threading
import time

import redis

from fleet.errors import ShardError, ShardsiftError, TransientError, UsageError
from fleet.ledger import Counts, Ledger, Publication
from fleet.settings import Settings
from fleet.storage.opening import output_class
from producer.finalizer.publish import NotReady, finalize_run
from producer.finalizer.sweep import for_each
from producer.finalizer.waves import WaveRule, WaveWatch, save_due_waves

_SWEEPS_APART = 4  # a publication that failed is tried again after the time of so many sweeps
logger = logging.getLogger(__name__)


class Publisher:
    """Keeps no state that matters, so any number may work at once. `at_work` is held while a run is published or saved."""

    def __init__(self, ledger: Ledger, settings: Settings, *, only_run: str | None = None) -> None:
        self.at_work = threading.Lock()
        self._ledger = ledger
        self._settings = settings
        self._only_run = only_run
        self._waves = WaveWatch(WaveRule.of(settings))
        self._left: set[str] = set()

    def publish_ready(self) -> None:
        """Check all runs once. Raises errors of Redis. Any other error of a run is recorded, and other runs go on."""
        run_ids = [self._only_run] if self._only_run else self._ledger.run_ids()[::-1]
        for_each(run_ids, self._check, left=self._left)

    def _check(self, run_id: str) -> None:
        if not self._ledger.may_publish(run_id):
            return
        counts, publication = self._ledger.counts(run_id), self._ledger.publication(run_id)
        if publication and publication.shards == counts.done and not counts.open:
            return
        if self._wants_wave(run_id, counts) or self._is_ready(run_id, counts):
            with self.at_work:
                publish_or_save(self._ledger, run_id, self._settings)

    def _wants_wave(self, run_id: str, counts: Counts) -> bool:
        """Whether to check for shards that must be saved. Of a cancelled run too: it may be resumed."""
        if output_class(self._ledger.spec(run_id).output_uri).staged_files_stay:
            return False
        is_begun = bool(counts.done and (counts.open or counts.failed))
        return is_begun and self._waves.wants_look(run_id, done=counts.done, now=time.monotonic())

    def _is_ready(self, run_id: str, counts: Counts) -> bool:
        if counts.open or counts.failed or not counts.done:
            return False
        return not self._ledger.is_cancelled(run_id) or self._ledger.is_publishing(run_id)


def publish_or_save(ledger: Ledger, run_id: str, settings: Settings) -> Publication | NotReady:
    """Publish a run if it is ready, otherwise save finished shards that have waited too long.

    Records and raises the error that prevented it: one that may go away is tried again after a while.
    """
    try:
        outcome = finalize_run(ledger, run_id, without_failed=False)
        if isinstance(outcome, NotReady) and _save_waves(ledger, run_id, settings):
            # The last shard may have finished meanwhile, and another finalizer may have published and removed the branch.
            outcome = finalize_run(ledger, run_id, without_failed=False)
    except redis.RedisError:
        raise
    except Exception as error:
        _record(ledger, run_id, error, settings)
        raise
    return outcome


def _save_waves(ledger: Ledger, run_id: str, settings: Settings) -> int:
    try:
        return save_due_waves(ledger, run_id, WaveRule.of(settings))
    except TransientError as error:
        logger.warning("%s A later sweep tries again.", error)
        if error.retry_after_seconds:
            _record(ledger, run_id, error, settings)
        return 0


def _record(ledger: Ledger, run_id: str, error: Exception, settings: Settings) -> None:
    asked_for = error.retry_after_seconds if isinstance(error, TransientError) else None
    ledger.record_publish_error(
        run_id,
        str(error) if isinstance(error, ShardsiftError) else f"{type(error).__name__}: {error}",
        is_permanent=isinstance(error, (ShardError, UsageError)),
        retry_after_seconds=asked_for or _SWEEPS_APART * settings.sweep_seconds,
    )
