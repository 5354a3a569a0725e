"""The sweep repairs what a crash left between two steps. Every action is atomic, so any number of sweeps may run at once."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from fleet.announcements import ANNOUNCE_SECONDS
from fleet.counted import counted
from fleet.dispatch import queue_lost_shards, send_due_shards, send_finalize
from fleet.errors import NewerVersion
from fleet.finalizers import FinalizerState, announce_finalizer, withdraw_finalizer
from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE, NOT_OURS
from fleet.queues import queue_length
from fleet.redis_away import ABOUT_REDIS
from fleet.settings import Settings
from fleet.storage.opening import output_class
from producer.finalizer.waves import WaveRule, WaveWatch

_PUBLISH_AGAIN_SECONDS = 60.0
logger = logging.getLogger(__name__)


class Sweeper:
    """Sends the messages that are due, and requests publishing of finished runs and waves of unfinished ones.

    A shard is due again if its lease expired, its back-off is over or its message was lost.
    """

    def __init__(self, app: Celery, ledger: Ledger, settings: Settings, *, only_run: str | None = None) -> None:
        self._app = app
        self._ledger = ledger
        self._settings = settings
        self._only_run = only_run
        self._waves = WaveWatch(WaveRule.of(settings))
        self._asked: dict[str, float] = {}  # run → when publishing was last asked for, monotonic
        self._told: set[str] = set()  # runs that this version cannot read
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="sweep", daemon=True).start()
        threading.Thread(target=self._announce, name="announcer", daemon=True).start()

    def stop(self, **_: Any) -> None:
        """End the sweep. A receiver of Celery's signal, so it takes any fields."""
        self._stopped.set()

    def count_refused(self, **_: Any) -> None:
        """Count a message that Celery refused: an unknown task, or a malformed message. A receiver, as `stop`."""
        self._survive(lambda: self._ledger.count_refused(NOT_OURS))

    def sweep(self) -> None:
        """Check all runs once, then all trainings. The oldest go first, so that their shards get the room in full queues.

        Raises errors of Redis. Any other error of a run is logged and does not affect the other runs.
        """
        self._sweep_each([self._only_run] if self._only_run else self._ledger.run_ids()[::-1], self._sweep_run)
        if not self._only_run:
            self._sweep_each(self._ledger.trainings.run_ids()[::-1], self._sweep_training)

    def _sweep_each(self, run_ids: Iterable[str], sweep: Callable[[str], None]) -> None:
        for run_id in run_ids:
            try:
                sweep(run_id)
            except (redis.RedisError, OperationalError):
                raise
            except NewerVersion as newer:
                if run_id not in self._told:
                    logger.warning("Left to other finalizers: %s", newer, extra={"run_id": run_id})
                    self._told.add(run_id)
            except Exception:
                logger.exception("The sweep of %s failed; the next one tries again", run_id, extra={"run_id": run_id})

    def _sweep_training(self, training_id: str) -> None:
        trainings = self._ledger.trainings
        if trainings.is_cancelled(training_id):
            return
        queue_lost_shards(trainings, training_id, resend_seconds=self._settings.resend_seconds)
        if send_due_shards(self._app, trainings, training_id):
            logger.info("Training %s: sent again", training_id, extra={"run_id": training_id})

    def _sweep_run(self, run_id: str) -> None:
        self._ask_for_waves(run_id)  # for a cancelled run too: it may be resumed
        if self._ledger.is_cancelled(run_id) and not self._ledger.is_publishing(run_id):
            return
        self._pause_if_too_expensive(run_id)
        queue_lost_shards(self._ledger, run_id, resend_seconds=self._settings.resend_seconds)
        sent = send_due_shards(self._app, self._ledger, run_id)
        if sent:
            logger.info("Run %s: sent what was due: %s", run_id, counted(sent, "shard"), extra={"run_id": run_id})
        self._ask_for_publishing(run_id)

    def _pause_if_too_expensive(self, run_id: str) -> None:
        steering = self._ledger.steering(run_id)
        if steering.max_cost is None:
            return
        counts = self._ledger.counts(run_id)
        why = steering.why_too_expensive(counts.worker_seconds)
        if why and counts.open and self._ledger.pause_reason(run_id) is None:
            self._ledger.pause(run_id, reason=why)
            logger.warning("Run %s is paused: %s", run_id, why, extra={"run_id": run_id})

    def _ask_for_publishing(self, run_id: str) -> None:
        counts = self._ledger.counts(run_id)
        publication = self._ledger.publication(run_id)
        if counts.open or counts.failed or not counts.done or (publication and publication.shards == counts.done):
            return
        if not self._ledger.may_publish(run_id):
            return
        just_asked = time.monotonic() - self._asked.get(run_id, -_PUBLISH_AGAIN_SECONDS) < _PUBLISH_AGAIN_SECONDS
        if not just_asked and queue_length(self._ledger.redis, FINALIZE_QUEUE) == 0:
            self._asked[run_id] = time.monotonic()
            send_finalize(self._app, run_id)

    def _ask_for_waves(self, run_id: str) -> None:
        if output_class(self._ledger.spec(run_id).output_uri).staged_files_stay:
            return
        counts = self._ledger.counts(run_id)
        is_unfinished = counts.open or counts.failed
        if counts.done and is_unfinished and self._waves.wants_look(run_id, done=counts.done, now=time.monotonic()):
            send_finalize(self._app, run_id)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._survive(self.sweep)
            self._stopped.wait(self._settings.sweep_seconds)

    def _announce(self) -> None:
        """In a thread of its own, because a sweep of many runs takes longer than an announcement lasts."""
        state = FinalizerState(name=f"{socket.gethostname()}/{os.getpid()}", only_run=self._only_run)
        while not self._stopped.is_set():
            with suppress(redis.RedisError):  # the sweep logs that Redis is away
                announce_finalizer(self._ledger.redis, state)
            self._stopped.wait(ANNOUNCE_SECONDS)
        with suppress(redis.RedisError):  # if it fails, the record expires by itself
            withdraw_finalizer(self._ledger.redis, state.name)

    def _survive(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (redis.RedisError, OperationalError) as error:
            logger.warning("Redis does not answer (%s); the sweep continues when it does", error, extra=ABOUT_REDIS)
        except Exception:  # a sweep that died unseen would stop the fleet
            logger.exception("The sweep failed; the next one tries again")
