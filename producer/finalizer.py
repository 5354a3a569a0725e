"""The finalizer: repeatedly sweep the ledger and publish runs that are ready, until SIGTERM or SIGINT.

It takes no messages, so no message can crash it. A worker wakes it when a run may be finished. Every action is atomic
and all state is in Redis and the output, so any number of finalizers may run at once.
"""

import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis
from celery import Celery

from shardsift.fleet.dispatch import queue_lost_shards, send_due_shards
from shardsift.fleet.errors import ShardError, ShardsiftError, TransientError, UsageError
from shardsift.fleet.ledger import Counts, Ledger, Publication
from shardsift.fleet.ledger.connect import START_SECONDS
from shardsift.fleet.ledger.records import RunState
from shardsift.fleet.presence.announcements import (
    ANNOUNCE_SECONDS,
    FinalizerState,
    announce_finalizer,
    withdraw_finalizer,
)
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.redis_away import ABOUT_REDIS, as_ours, is_of_one_key
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.storage.open_output import is_on_hub
from shardsift.fleet.storage.scratch import remove_abandoned
from shardsift.producer.publishing.publish import NotReady, finalize_run, merge_finished
from shardsift.producer.publishing.waves import WaveWatch, save_due_waves
from shardsift.producer.status.metrics import serve_metrics

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_STOP_SECONDS = 50.0  # time for a publication in progress; systemd and Compose kill a finalizer after a minute
_WITHDRAW_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_MOST_WAIT_SECONDS = 10.0  # less than the timeout of the Redis client
logger = logging.getLogger(__name__)


def run_finalizer(settings: Settings) -> None:
    """Run a finalizer until SIGTERM or SIGINT. Raises UsageError if no Redis answers, or if the Redis user lacks rights."""
    ledger = Ledger.connect(settings, wait_seconds=START_SECONDS)
    if settings.scratch_dir:
        tempfile.tempdir = str(settings.scratch_dir)
    remove_abandoned(settings.scratch_dir)
    if settings.metrics_port and not settings.only_run:
        serve_metrics(ledger, address=settings.metrics_address, port=settings.metrics_port)
    Finalizer(ledger, settings).run()


class Finalizer:
    """Sweep and publish in two threads, so that lost shards are sent again even during a long publication."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._state = FinalizerState(name=f"{socket.gethostname()}/{os.getpid()}", only_run=settings.only_run)
        self._app = make_app("finalizer", settings)
        self._publisher = Publisher(ledger, settings)
        self._stopped = threading.Event()
        self._announcer = threading.Thread(target=self._announce, name="announcer", daemon=True)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Finishes a publication in progress first; a second signal interrupts it."""
        # Threads inherit the mask, so only `sigwait` receives the signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        self.start()
        logger.info("The finalizer %s is ready.", self._state.name)
        signal.sigwait(_STOP_SIGNALS)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        self.stop()

    def start(self) -> None:
        self._announcer.start()
        threading.Thread(target=self._sweep, name="sweep", daemon=True).start()
        threading.Thread(target=self._publish, name="publish", daemon=True).start()

    def stop(self) -> None:
        """Wait for the end of a publication in progress, and stop the threads. If it takes too long, exit the process.

        Threads that wait for Redis are daemons and end with the process.
        """
        self._stopped.set()
        if not self._publisher.at_work.acquire(timeout=_STOP_SECONDS):
            logger.warning("Exiting in the middle of a publication: the next finalizer goes on with it")
            os._exit(0)  # otherwise Python would wait for the threads of the output's client
        self._announcer.join(_WITHDRAW_SECONDS)

    def _sweep(self) -> None:
        while not self._stopped.is_set():
            self._survive(lambda: sweep(self._app, self._ledger, self._settings))
            self._stopped.wait(self._settings.sweep_seconds)

    def _publish(self) -> None:
        seconds = min(self._settings.sweep_seconds, _MOST_WAIT_SECONDS)
        while not self._stopped.is_set():
            self._survive(self._publisher.publish_ready)
            self._survive(lambda: self._ledger.wait_for_finished_run(seconds))

    def _announce(self) -> None:
        """Announce this finalizer until it stops.

        Runs in its own thread, because an announcement could expire during a long sweep.
        """
        while not self._stopped.is_set():
            with suppress(redis.RedisError):  # the sweep logs that Redis is down
                announce_finalizer(self._ledger.redis, self._state)
            self._stopped.wait(ANNOUNCE_SECONDS)
        with suppress(redis.RedisError):  # if it fails, the record expires by itself
            withdraw_finalizer(self._ledger.redis, self._state.name)

    def _survive(self, action: Callable[[], object]) -> None:
        try:
            action()
            return
        except redis.RedisError as error:
            logger.warning("%s The finalizer tries again.", as_ours(error), extra=ABOUT_REDIS)
        except Exception:  # if this thread died, nothing would be published any more
            logger.exception("The finalizer failed; it tries again")
        self._stopped.wait(_PAUSE_SECONDS)


# Repair what a crash has left unfinished.


def sweep(app: Celery, ledger: Ledger, settings: Settings) -> None:
    """Send a message for each shard whose lease expired, whose back-off is over or whose message was lost.

    Pauses runs that have reached their cost limit. Logs an error about one run, and goes on with the next run. Raises errors
    of Redis that concern all runs.
    """

    def sweep_run(run_id: str) -> None:
        state = ledger.state(run_id)
        if state.cancelled:
            return
        _pause_if_too_expensive(ledger, run_id, state)
        queue_lost_shards(ledger, run_id, resend_seconds=settings.resend_seconds)
        if sent := send_due_shards(app, ledger, run_id):
            logger.info("Run %s: sent what was due: %s", run_id, counted(sent, "shard"), extra={"run_id": run_id})

    _for_each_run(ledger, settings, sweep_run)


def _pause_if_too_expensive(ledger: Ledger, run_id: str, state: RunState) -> None:
    if state.paused is not None or state.steering.max_cost is None:
        return
    counts = ledger.counts(run_id)
    why = state.steering.why_too_expensive(counts.worker_seconds)
    if why and counts.open:
        ledger.pause(run_id, reason=why)
        logger.warning("Run %s is paused: %s", run_id, why, extra={"run_id": run_id})


def _for_each_run(ledger: Ledger, settings: Settings, action: Callable[[str], None]) -> None:
    """Call `action` for each run, oldest first, so that older runs fill a limited queue first.

    Logs an error of `action`, and goes on with the next run. Raises errors of Redis, unless they concern a single key.
    """
    for run_id in [settings.only_run] if settings.only_run else ledger.run_ids()[::-1]:
        try:
            action(run_id)
        except redis.RedisError as error:
            if not is_of_one_key(error):
                raise
            logger.warning("Run %s: %s", run_id, as_ours(error), extra=ABOUT_REDIS | {"run_id": run_id})
        except ShardsiftError as error:
            logger.warning("Run %s: %s", run_id, error, extra={"run_id": run_id})
        except Exception:
            logger.exception("The check of %s failed; the next one tries again", run_id, extra={"run_id": run_id})


# Publish the runs that are ready. Save finished shards of the others if they have waited too long.

_SWEEPS_APART = 4  # sweeps until a failed publication is tried again


class Publisher:
    """Publish runs that are ready, and merge or save finished shards of others. `at_work` is locked while it does so."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self.at_work = threading.Lock()
        self._ledger = ledger
        self._settings = settings
        self._waves = WaveWatch(settings)

    def publish_ready(self) -> None:
        """Check each run once. If it is due, publish it, or merge or save its finished shards.

        Logs an error about one run, and goes on with the next run. Raises errors of Redis that concern all runs.
        """
        _for_each_run(self._ledger, self._settings, self._check)

    def _check(self, run_id: str) -> None:
        if not self._ledger.may_publish(run_id):
            return
        state, counts, _ = self._ledger.progress(run_id)
        if state.publication and state.publication.shards == counts.done and not counts.open:
            return
        if self._wants_wave(run_id, counts) or self._is_ready(run_id, counts):
            with self.at_work:
                publish_or_save(self._ledger, run_id, self._settings)

    def _wants_wave(self, run_id: str, counts: Counts) -> bool:
        """Return whether to look for shards to save or merge now. May be true for a cancelled run: `retry` may resume it."""
        spec = self._ledger.spec(run_id)
        if not is_on_hub(spec.output_uri) and spec.target_file_bytes is None:
            return False
        is_begun = bool(counts.done and (counts.open or counts.failed))
        return is_begun and self._waves.is_check_due(run_id, done=counts.done, now=time.monotonic())

    def _is_ready(self, run_id: str, counts: Counts) -> bool:
        if counts.open or counts.failed or not counts.done:
            return False
        return not self._ledger.state(run_id).cancelled or self._ledger.is_publishing(run_id)


def publish_or_save(ledger: Ledger, run_id: str, settings: Settings) -> Publication | NotReady:
    """Publish a run if it is ready. Otherwise merge its finished shards, and save them if a wave is due.

    Records errors in the ledger before raising them, except errors of Redis. After a temporary error, a later sweep tries
    again.
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
        merge_finished(ledger, run_id)
        return save_due_waves(ledger, run_id, settings)
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
