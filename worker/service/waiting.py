"""Wait while Redis is unreachable, frozen, full or a replica, instead of losing the work on a shard."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import redis

from fleet.errors import Stopped
from fleet.process.redis_away import ABOUT_REDIS

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
