"""Wait while Redis is unreachable, frozen, full or a replica, and say so once a minute.

A process that cannot reach Redis tries again every second or so, in several threads, and so does Celery. Their log calls
pass `extra=ABOUT_REDIS`, and the filter lets one of them through, and another one if the reason changes.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import redis

from fleet.errors import Stopped

ABOUT_REDIS = {"is_about_redis": True}
_SILENT_SECONDS = 60.0
_NO_CONNECTION = (redis.ConnectionError, redis.TimeoutError)  # and not their kinds, such as a wrong password
_REASON_WORDS = 3  # such as "OOM command not"
_CELERYS_LOGGER, _CELERYS_ATTEMPT = "celery.worker.consumer.consumer", "consumer: Cannot connect to"
_NOISE = "Skipping prefetch count reduction"


_PAUSE_SECONDS = 1.0
_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.OutOfMemoryError,
    redis.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
# Errors that the client has no class for. Before Redis 7, errors of a script also have their code only in the text.
_PASSING_CODES = ("OOM", "READONLY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS")
T = TypeVar("T")
logger = logging.getLogger(__name__)


def wait_for_redis(action: Callable[[], T], stopping: threading.Event) -> T:
    """Call `action` until Redis accepts it. Returns its result. Raises Stopped if the worker stops meanwhile."""
    while True:
        try:
            return action()
        except redis.RedisError as error:
            if not _may_pass(error):
                raise
            logger.warning("Waiting for Redis: %s", error, extra=ABOUT_REDIS)
            if stopping.wait(_PAUSE_SECONDS):
                raise Stopped("The worker is stopping, and Redis does not answer.") from error


def _may_pass(error: redis.RedisError) -> bool:
    return isinstance(error, _PASSING) or any(code in str(error) for code in _PASSING_CODES)


class OnceAMinute(logging.Filter):
    """Drops records about Redis for a minute after one with the same reason."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at: dict[str, float] = {}  # by reason

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE):
            return False
        if not _is_about_redis(record):
            return True
        reason, now = _reason(record), time.monotonic()
        is_due = now - self._told_at.get(reason, -_SILENT_SECONDS) >= _SILENT_SECONDS
        if is_due:
            self._told_at[reason] = now
        return is_due


def _is_about_redis(record: logging.LogRecord) -> bool:
    if record.name == _CELERYS_LOGGER:
        return str(record.msg).startswith(_CELERYS_ATTEMPT)
    return getattr(record, "is_about_redis", False)


def _reason(record: logging.LogRecord) -> str:
    """One reason for all that a lost connection raises; for other errors their first words."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = next((argument for argument in arguments if isinstance(argument, Exception)), "")
    if type(error) in _NO_CONNECTION or isinstance(error, OSError):
        return "no connection"
    return " ".join(str(error).split()[:_REASON_WORDS])
