"""The sweep repairs what a crash left between two steps. Every action is atomic, so any number of sweeps may run at once."""

import logging
from collections.abc import Callable, Iterable

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from fleet.errors import ShardsiftError
from fleet.ledger import Ledger
from fleet.process.dispatch import queue_lost_shards, send_due_shards
from fleet.process.settings import Settings
from fleet.process.wording import counted

logger = logging.getLogger(__name__)


class Sweeper:
    """Sends the messages that are due: of shards whose lease expired, whose back-off is over or whose message was lost."""

    def __init__(self, app: Celery, ledger: Ledger, settings: Settings, *, only_run: str | None = None) -> None:
        self._app = app
        self._ledger = ledger
        self._settings = settings
        self._only_run = only_run

    def sweep(self) -> None:
        """Check all runs once. The oldest go first, so that their shards get the room in full queues.

        Raises errors of Redis. Any other error of a run is logged and does not affect the other runs.
        """
        run_ids = [self._only_run] if self._only_run else self._ledger.run_ids()[::-1]
        for_each(run_ids, self._sweep_run)

    def _sweep_run(self, run_id: str) -> None:
        if self._ledger.is_cancelled(run_id):
            return
        self._pause_if_too_expensive(run_id)
        queue_lost_shards(self._ledger, run_id, resend_seconds=self._settings.resend_seconds)
        if sent := send_due_shards(self._app, self._ledger, run_id):
            logger.info("Run %s: sent what was due: %s", run_id, counted(sent, "shard"), extra={"run_id": run_id})

    def _pause_if_too_expensive(self, run_id: str) -> None:
        steering = self._ledger.steering(run_id)
        if steering.max_cost is None:
            return
        counts = self._ledger.counts(run_id)
        why = steering.why_too_expensive(counts.worker_seconds)
        if why and counts.open and self._ledger.pause_reason(run_id) is None:
            self._ledger.pause(run_id, reason=why)
            logger.warning("Run %s is paused: %s", run_id, why, extra={"run_id": run_id})


def for_each(run_ids: Iterable[str], action: Callable[[str], None]) -> None:
    """Call `action` for each run. Raises errors of Redis. Any other error of a run is logged and stops no other run."""
    for run_id in run_ids:
        try:
            action(run_id)
        except (redis.RedisError, OperationalError):
            raise
        except ShardsiftError as error:
            logger.warning("Run %s: %s", run_id, error, extra={"run_id": run_id})
        except Exception:
            logger.exception("The check of %s failed; the next one tries again", run_id, extra={"run_id": run_id})
