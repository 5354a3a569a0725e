"""The finalizer: sweep the ledger and publish what is ready, again and again, until SIGTERM or SIGINT.

It takes no messages, so that nothing in a queue can end it. A worker wakes it when a run may be finished.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import redis
from kombu.exceptions import OperationalError

from fleet.announcements import ANNOUNCE_SECONDS
from fleet.broker import make_app
from fleet.finalizers import FinalizerState, announce_finalizer, withdraw_finalizer
from fleet.ledger import Ledger
from fleet.ledger.rights import PRODUCER
from fleet.redis_away import ABOUT_REDIS
from fleet.settings import Settings
from producer.finalizer.ready import Publisher
from producer.finalizer.sweep import Sweeper
from producer.metrics.serve import serve_metrics

ONLY_RUN = "SHARDSIFT_FINALIZER_RUN"  # set by `producer run`: sweep this run and leave others alone
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_STOP_SECONDS = 50.0  # that a publication in progress gets; systemd and Compose kill a finalizer after a minute
_WITHDRAW_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_MOST_WAIT_SECONDS = 10.0  # less than the client waits for an answer
logger = logging.getLogger(__name__)


def run_finalizer(settings: Settings) -> None:
    """Run until stopped. Raises UsageError if no Redis answers, or its user lacks rights."""
    only_run = os.environ.get(ONLY_RUN)
    ledger = Ledger.connect(settings, wait_seconds=settings.redis_wait_seconds, role=PRODUCER)
    if settings.metrics_port and not only_run:
        serve_metrics(ledger, address=settings.metrics_address, port=settings.metrics_port)
    Finalizer(ledger, settings, only_run=only_run).run()


class Finalizer:
    """Sweeps and publishes in threads of their own: while a long publication lasts, lost shards are sent again."""

    def __init__(self, ledger: Ledger, settings: Settings, *, only_run: str | None = None) -> None:
        self._ledger = ledger
        self._state = FinalizerState(name=f"{socket.gethostname()}/{os.getpid()}", only_run=only_run)
        self._sweeper = Sweeper(make_app("finalizer", settings), ledger, settings, only_run=only_run)
        self._publisher = Publisher(ledger, settings, only_run=only_run)
        self._sweep_seconds = settings.sweep_seconds
        self._stopped = threading.Event()
        self._announcer = threading.Thread(target=self._announce, name="announcer", daemon=True)

    def run(self) -> None:
        """Serve until a signal. A publication in progress is finished first; a second signal ends it."""
        # Threads inherit the mask, so that a signal waits for `sigwait`.
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
        """End the threads. Those that wait for a Redis that is away end with the process."""
        self._stopped.set()
        if not self._publisher.at_work.acquire(timeout=_STOP_SECONDS):
            logger.warning("Exiting in the middle of a publication: the next finalizer goes on with it")
            os._exit(0)  # else Python would wait for the threads of the output's client
        self._announcer.join(_WITHDRAW_SECONDS)

    def _sweep(self) -> None:
        while not self._stopped.is_set():
            self._survive(self._sweeper.sweep)
            self._stopped.wait(self._sweep_seconds)

    def _publish(self) -> None:
        seconds = min(self._sweep_seconds, _MOST_WAIT_SECONDS)
        while not self._stopped.is_set():
            self._survive(self._publisher.publish_ready)
            self._survive(lambda: self._ledger.wait_for_finished_run(seconds))

    def _announce(self) -> None:
        """In a thread of its own, because a sweep of many runs takes longer than an announcement lasts."""
        while not self._stopped.is_set():
            with suppress(redis.RedisError):  # the sweep logs that Redis is away
                announce_finalizer(self._ledger.redis, self._state)
            self._stopped.wait(ANNOUNCE_SECONDS)
        with suppress(redis.RedisError):  # if it fails, the record expires by itself
            withdraw_finalizer(self._ledger.redis, self._state.name)

    def _survive(self, action: Callable[[], object]) -> None:
        try:
            action()
            return
        except (redis.RedisError, OperationalError) as error:
            logger.warning("Redis does not answer (%s); the finalizer continues when it does", error, extra=ABOUT_REDIS)
        except Exception:  # a thread that died unseen would stop the fleet
            logger.exception("The finalizer failed; it tries again")
        self._stopped.wait(_PAUSE_SECONDS)
