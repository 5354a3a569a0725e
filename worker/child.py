"""The child of a worker: the process that owns the device and the model, for as long as it lives.

Celery's parent process stays light: it talks to the broker, imports no torch, and turns SIGTERM into this
child's "stop at the next batch". Celery starts the child anew when it dies.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NoReturn

from fleet.ledger import Claim, Ledger
from fleet.settings import Settings, read_settings
from worker.child_signal import EXIT_NO_MODEL, EXIT_STOPPED, STOP_SIGNAL, crash_report_path, leave_failure
from worker.scratch import remove_abandoned
from worker.watchdog import Watchdog

if TYPE_CHECKING:
    from worker.scoring import Scorer

logger = logging.getLogger(__name__)


class Child:
    """What tasks need: settings, ledger, model, the shard at hand, and whether the worker is to stop."""

    def __init__(self, settings: Settings, scorer: "Scorer", crash_report: IO[str]) -> None:
        self.settings = settings
        self.scorer = scorer
        self.stopping = threading.Event()
        self.ledger = Ledger.connect(settings)
        self.watchdog = Watchdog(settings.stall_seconds, crash_report)
        self._claim: Claim | None = None
        self._give_back: Callable[[Claim], None] = lambda claim: None

    @contextmanager
    def holding(self, claim: Claim, *, give_back: Callable[[Claim], None]) -> Iterator[None]:
        """For the block, what to do about the claim if the process must end in the midst of it."""
        self._claim, self._give_back = claim, give_back
        try:
            yield
        finally:
            self._claim = None

    def stop(self) -> None:
        """Stop at the next batch, or when that takes too long, without it. The second call: at once."""
        if self.stopping.is_set():
            threading.Thread(target=self.end_now, name="end now").start()
            return
        self.stopping.set()
        timer = threading.Timer(self.settings.stop_seconds, self.end_now)
        timer.daemon = True
        timer.start()

    def end_now(self) -> NoReturn:
        """Give the shard back and exit, whatever the other threads are at: its finished windows are kept."""
        claim = self._claim
        try:
            if claim:
                logger.warning("Shard %s is given back in the midst of a batch or an upload", claim.shard.name)
                self._give_back(claim)
        finally:
            os._exit(EXIT_STOPPED)

    def heed_signals(self) -> None:
        """Celery sets its own handler of SIGTERM after `start_child`: one that ends a task wherever it is."""
        for number in (STOP_SIGNAL, signal.SIGTERM):
            signal.signal(number, lambda _signal, _frame: self.stop())


def start_child() -> Child:
    """Load the model and be ready. A child that cannot takes the whole worker down, with the reason, and eats no shard."""
    signal.signal(STOP_SIGNAL, lambda _signal, _frame: os._exit(EXIT_STOPPED))  # there is nothing to give back yet
    crash_report = crash_report_path().open("w")
    faulthandler.enable(crash_report)
    settings = read_settings()
    remove_abandoned(settings.scratch_dir)
    try:
        child = Child(settings, _load(settings), crash_report)
    except Exception as error:
        _give_up(str(error))
        raise
    child.heed_signals()
    return child


def _load(settings: Settings) -> "Scorer":
    from worker.loading import load_served_model  # not above: the parent imports this module, and must not import torch

    scorer = load_served_model(settings)
    logger.info(
        "Model %s is loaded on %s in %s, %s", settings.model, scorer.device_name, scorer.dtype, scorer.backend.name
    )
    if scorer.parity:
        logger.info(
            "Its logits of %d sample texts are within %.2g of those of float32",
            scorer.parity.rows,
            scorer.parity.max_error,
        )
    return scorer


def _give_up(reason: str) -> None:
    """Celery would swallow the error, start another child, and so on for ever."""
    sys.stderr.write(f"{reason}\n")
    leave_failure(reason)
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(EXIT_NO_MODEL)
