"""The child of a worker: the process that owns the device and the model, for as long as it lives.

Celery's parent process stays light: it talks to the broker, imports no torch, and turns SIGTERM into this
child's "stop at the next batch". Celery starts the child anew when it dies.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from fleet.ledger import Ledger
from fleet.settings import Settings, read_settings
from worker.child_signal import EXIT_NO_MODEL, FAILURE_FILE, STOP_SIGNAL
from worker.loading import load_model
from worker.scoring import Scorer
from worker.tuning.apply import with_tuned_budget

logger = logging.getLogger(__name__)


class Child:
    """What tasks need: settings, ledger, model, and whether the worker is to stop."""

    def __init__(self, settings: Settings, scorer: Scorer, stopping: threading.Event) -> None:
        self.settings = settings
        self.scorer = scorer
        self.stopping = stopping
        self.ledger = Ledger.connect(settings)


def start_child() -> Child:
    """Load the model and be ready. A child that cannot takes the whole worker down, with the reason, and eats no shard."""
    stopping = threading.Event()
    signal.signal(STOP_SIGNAL, lambda _signal, _frame: stopping.set())
    settings = read_settings()
    try:
        return Child(settings, _load(settings), stopping)
    except Exception as error:
        _give_up(str(error))
        raise


def _load(settings: Settings) -> Scorer:
    scorer = with_tuned_budget(load_model(settings), settings)
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
    if FAILURE_FILE in os.environ:
        Path(os.environ[FAILURE_FILE]).write_text(reason)
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(EXIT_NO_MODEL)
