"""Wait for a Redis that is away, frozen, full or a replica for now, rather than lose a shard's work over it."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import redis

from fleet.errors import Stopped

_PAUSE_SECONDS = 1.0
_PASSING = (
    "OOM",
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
)  # as a script reports them: in its text
T = TypeVar("T")
logger = logging.getLogger(__name__)


def patiently(action: Callable[[], T], stopping: threading.Event) -> T:
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
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        return True
    return any(sign in str(error) for sign in _PASSING)
