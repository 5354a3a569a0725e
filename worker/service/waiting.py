"""Wait for a Redis that is away, frozen, full or a replica for now, rather than lose a shard's work over it."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import redis

from fleet.errors import Stopped

_PAUSE_SECONDS = 1.0
_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.OutOfMemoryError,
    redis.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
# What the client has no class for, and what servers before Redis 7 report of a script: the code is in the text.
_PASSING_CODES = ("OOM", "READONLY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS")
T = TypeVar("T")
logger = logging.getLogger(__name__)


def wait_for_redis(action: Callable[[], T], stopping: threading.Event) -> T:
    """What `action` returns, once Redis takes it. Raises Stopped if the worker is to leave meanwhile."""
    while True:
        try:
            return action()
        except redis.RedisError as error:
            if not _may_pass(error):
                raise
            logger.warning("Waiting for Redis: %s", error)
            if stopping.wait(_PAUSE_SECONDS):
                raise Stopped("The worker is stopping, and Redis does not answer.") from error


def _may_pass(error: redis.RedisError) -> bool:
    return isinstance(error, _PASSING) or any(code in str(error) for code in _PASSING_CODES)
