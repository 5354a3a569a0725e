"""Reduce the log messages of libraries: none that a user cannot act on, and no error twice."""

import logging
import os

from billiard.exceptions import WorkerLostError

from fleet.errors import ShardsiftError
from fleet.process.logs import LINE
from worker.scoring.quiet import quieten_imports
from worker.service.ipc import NAME


def log_line() -> str:
    """The format of this worker's lines. A supervisor's workers share a log, so each says which one it is."""
    name = os.environ.get(NAME, "").replace("%", "%%")
    return LINE.replace("%(levelname)s", f"{name} %(levelname)s") if name else LINE


def quieten_celery() -> None:
    """Call this after Celery has set up logging, in the parent and in each child."""
    for name in ("celery.worker.strategy", "celery.app.trace"):  # each shard has a line of ours
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ["_MP_FORK_LOGLEVEL_"] = str(logging.ERROR)  # Celery's log level for children until they set up logging
    for name in ("celery.app.trace", "celery.worker.request"):
        logging.getLogger(name).addFilter(_without_repetition)


def quieten_model_libraries() -> None:
    """Before torch and transformers are imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    quieten_imports()


def _without_repetition(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ShardsiftError):
        cause = error.__cause__ if type(error) is ShardsiftError else None
        record.exc_info = (type(cause), cause, cause.__traceback__) if cause else None
    return not _is_lost_worker(error)  # the parent logs it with the shard's name and the traces of its threads


def _is_lost_worker(error: BaseException | None) -> bool:
    return isinstance(error, WorkerLostError) or isinstance(getattr(error, "exc", None), WorkerLostError)
