"""Load the scorer that a worker serves. Imports torch, so only the child may import it."""

import logging
import os
from multiprocessing import process
from pathlib import Path
from typing import Any, NoReturn

from fleet.process.settings import Settings
from fleet.run.model import Model
from worker.loading import load_model, with_tuned_budget
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.service.ipc import EXIT_DEVICE_FAULT, FOLDER

logger = logging.getLogger(__name__)


def load_served_model(model: Model, settings: Settings) -> SequenceClassifier:
    """Load the model of the settings, with the token budget that `worker tune` found best on this device.

    Raises the same errors as `load_model`.
    """
    if folder := os.environ.get(FOLDER):  # of a worker, which removes what its children leave there
        _let_multiprocessing_start_ranks()
        scorer = load_model(settings, scratch_dir=Path(folder), on_lost_rank=end_without_rank)
    else:  # in a user's process
        scorer = load_model(settings)
    return with_tuned_budget(scorer, settings)


def _let_multiprocessing_start_ranks() -> None:
    """Celery's process is a daemon, and multiprocessing's current process too. Such a process may start no others."""
    current: Any = process.current_process()
    current._config |= {"daemon": False, "authkey": process.AuthenticationString(current.authkey)}  # type: ignore[attr-defined]


def end_without_rank(reason: str) -> NoReturn:
    """A group cannot go on without a rank. The parent queues its work again, and Celery starts another child, with its ranks.

    Called in a thread: with NCCL, the thread that computes would wait for the lost rank.
    """
    logger.error("%s A new process replaces this one and its ranks.", reason)
    os._exit(EXIT_DEVICE_FAULT)
