"""The child of a worker: the process that owns the device and the model, for as long as it lives.

Celery's parent process stays light: it talks to the broker, imports no torch, and turns SIGTERM into this
child's "stop at the next batch". Celery starts the child anew when it dies.
"""

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

import redis

from fleet.errors import UsageError
from fleet.ledger import Claim, Ledger
from fleet.parent_death import end_with_parent
from fleet.scorers import load_scorer
from fleet.settings import Settings, read_settings
from worker.scoring import Scorer
from worker.service.ipc import (
    EXIT_NO_MODEL,
    EXIT_STOPPED,
    PARENT,
    STOP_SIGNAL,
    crash_report_path,
    handed_down,
    leave_failure,
    leave_loaded,
)
from worker.service.logs import quieten_celery, quieten_model_libraries
from worker.service.watchdog import Watchdog
from worker.shard.scratch import remove_abandoned

_PAUSE_SECONDS = 1.0  # before Redis is asked again
logger = logging.getLogger(__name__)


class Child:
    """What tasks need: settings, ledger, model, the shard at hand, and whether the worker is to stop."""

    def __init__(self, settings: Settings, scorer: Scorer[Any], ledger: Ledger, crash_report: IO[str]) -> None:
        self.settings = settings
        self.scorer = scorer
        self.stopping = threading.Event()
        self.ledger = ledger
        self.watchdog = Watchdog(settings.stall_seconds, crash_report)
        self._claim: Claim | None = None
        self._give_back: Callable[[], None] = lambda: None
        self._parent_spoke = False

    @contextmanager
    def holding(self, claim: Claim, *, give_back: Callable[[], None]) -> Iterator[None]:
        """For the block, what to do about the claim if the process must end in the midst of it."""
        self._claim, self._give_back = claim, give_back
        try:
            yield
        finally:
            self._claim = None

    def stop(self) -> None:
        """Stop at the next batch, or when that takes too long, without it. Further calls change nothing."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        timer = threading.Timer(self.settings.stop_seconds, self.end_now)
        timer.daemon = True
        timer.start()

    def on_stop_signal(self) -> None:
        """The parent's first signal stops the shard at the next batch; the second ends the process at once.

        A SIGTERM to the whole group is neither of them.
        """
        if self._parent_spoke:
            threading.Thread(target=self.end_now, name="end now").start()
        self._parent_spoke = True
        self.stop()

    def end_now(self) -> NoReturn:
        """Give the shard back and exit, whatever the other threads are at: its finished windows are kept."""
        claim = self._claim
        try:
            if claim:
                logger.warning("Shard %s is given back in the midst of a batch or an upload", claim.shard.name)
                self._give_back()
        finally:
            os._exit(EXIT_STOPPED)

    def install_signal_handlers(self) -> None:
        """Celery sets its own handler of SIGTERM after `start_child`: one that ends a task wherever it is."""
        signal.signal(signal.SIGTERM, lambda _signal, _frame: self.stop())
        signal.signal(STOP_SIGNAL, lambda _signal, _frame: self.on_stop_signal())


def start_child() -> Child:
    """Load the model and be ready. A child that cannot takes the whole worker down, with the reason, and eats no shard."""
    end_with_parent(int(os.environ[PARENT]), signal.SIGKILL)
    quieten_celery()
    signal.signal(STOP_SIGNAL, lambda _signal, _frame: os._exit(EXIT_STOPPED))  # there is nothing to give back yet
    try:
        child = _loaded_child(read_settings())
    except Exception as error:
        _give_up(error)
    child.install_signal_handlers()
    leave_loaded(child.scorer.info.device_type)
    return child


def _loaded_child(settings: Settings) -> Child:
    crash_report = crash_report_path().open("w")
    faulthandler.enable(crash_report)
    remove_abandoned(settings.scratch_dir)
    return Child(settings, _load(settings), _ledger(settings), crash_report)


def _load(settings: Settings) -> Scorer[Any]:
    quieten_model_libraries()
    scorer: Scorer[Any] = load_scorer(handed_down(), settings)
    info = scorer.info
    logger.info("Model %s is loaded on %s in %s, %s", settings.model, info.device, info.dtype, info.backend)
    if info.parity:
        logger.info(
            "Its logits of %d sample texts are within %.2g of those of float32", info.parity.rows, info.parity.max_error
        )
    return scorer


def _ledger(settings: Settings) -> Ledger:
    """The parent has found Redis: if it is away now, it comes back, and a worker that left over it might not."""
    while True:
        try:
            return Ledger.connect(settings)
        except UsageError as error:
            if not isinstance(error.__cause__, redis.RedisError) or isinstance(
                error.__cause__, redis.AuthenticationError
            ):
                raise
            logger.warning("Waiting for Redis: %s", error)
            time.sleep(_PAUSE_SECONDS)


def _give_up(error: Exception) -> NoReturn:
    """Celery would swallow the error, start another child, and so on for ever."""
    leave_failure(" ".join(str(error).split()) or type(error).__name__)
    os.kill(int(os.environ[PARENT]), signal.SIGTERM)
    os._exit(EXIT_NO_MODEL)
