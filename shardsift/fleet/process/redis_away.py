"""Wait while Redis is unreachable or refuses commands. Log the reason once a minute, with advice.

A process that cannot reach Redis tries again every second or so, in several threads, and so does Celery. Our log calls
about this pass `extra=ABOUT_REDIS`. `OnceAMinute` lets one record a minute through for each reason.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import redis

from shardsift.fleet.errors import ShardsiftError, Stopped, TransientError

ABOUT_REDIS = {"is_about_redis": True}
_SILENT_SECONDS = 60.0
_NO_CONNECTION = (redis.ConnectionError, redis.TimeoutError)  # not their subclasses, such as a wrong password
_REASON_WORDS = 3  # such as "OOM command not"
_CELERYS_LOGGER, _CELERYS_ATTEMPT = "celery.worker.consumer.consumer", "consumer: Cannot connect to"
_CELERYS_LOSS = "%s (%r)"  # logged for a lost connection, even if Redis answered; a worker then logs the answer
_NOISE = ("Skipping prefetch count reduction", "Frequent restarts detected")  # Celery also says why it restarts

_PAUSE_SECONDS = 1.0
# Advice, by words in Redis's answer or in the error's class. redis-py cuts off an answer's code if it has a class for it.
_OF_ONE_KEY = "WRONGTYPE"
_ADVICE = {
    "NoPermission|no permissions|ACL failure|executing the script can't": (
        "Name a user in REDIS_URL with the rights of `shardsift`, or for a worker of `shardsift-worker`, in "
        "ops/redis/users.acl, and database 0."
    ),
    "Authentication": "Check the user and the password in REDIS_URL, or REDIS_PASSWORD_FILE.",
    "OutOfMemory|OOM": "It is full (OOM): raise its maxmemory, or remove other data.",
    "ReadOnly|READONLY|MasterDown|MASTERDOWN": "It is a replica. Name its primary in REDIS_URL.",
    "unknown command|Unknown Redis command": "It lacks the command, or has renamed it. Use a server that has it.",
    "MISCONF|NOREPLICAS|TryAgain|LOADING": "Its log says more.",
    "DB index": "Name another database in REDIS_URL.",
    _OF_ONE_KEY: "A key of another type has replaced one of shardsift's. Delete it.",
}
T = TypeVar("T")
logger = logging.getLogger(__name__)


def wait_for_redis(action: Callable[[], T], stopping: threading.Event) -> T:
    """Call `action` until Redis accepts it. Returns its result.

    Raises Stopped if `stopping` is set while it waits. Raises an error of Redis at once if a retry cannot help.
    """
    while True:
        try:
            return action()
        except redis.RedisError as error:
            if not _may_pass(error):
                raise
            logger.warning("Waiting for Redis: %s", as_ours(error), extra=ABOUT_REDIS)
            if stopping.wait(_PAUSE_SECONDS):
                raise Stopped("The worker is stopping, and Redis does not answer.") from error


def _may_pass(error: redis.RedisError) -> bool:
    """Return whether a retry may succeed: Redis does not answer, or it refuses for a reason that someone can fix.

    Errors of a script or of a single key are final.
    """
    may_pass = isinstance(error, (redis.ConnectionError, redis.TimeoutError)) or bool(advice_on(error))
    return may_pass and not is_of_one_key(error)


def is_of_one_key(error: Exception) -> bool:
    """Return whether the error concerns a single key, so that other runs and queues still work."""
    return _OF_ONE_KEY in str(error)


@contextmanager
def redis_may_be_away() -> Iterator[None]:
    """Log the block's RedisErrors and ShardsiftErrors instead of raising them.

    The expiry of the lease or the finalizer's next sweep repairs what the block did not do.
    """
    try:
        yield
    except (redis.RedisError, ShardsiftError) as error:
        about = ABOUT_REDIS if isinstance(error, redis.RedisError) else {}
        logger.warning("A step was skipped, which the next sweep of the finalizer makes up for: %s", error, extra=about)


def as_ours(error: Exception, server: str = "Redis") -> TransientError:
    """Convert redis-py's error. The message says that `server` does not answer, or why it refuses and what to do."""
    reason = " ".join(str(error).split()).rstrip(".")
    refusal = f"{server} refuses this ({reason}). {advice_on(error)}".rstrip()
    ours = TransientError(refusal if is_refusal(error) else f"{server} does not answer ({reason}).")
    ours.__cause__ = error
    return ours


def is_refusal(error: BaseException | None) -> bool:
    """Return whether the error is an answer of Redis, not a failed connection."""
    return isinstance(error, (redis.ResponseError, redis.AuthenticationError))


def advice_on(refusal: BaseException) -> str:
    said = f"{type(refusal).__name__} {refusal}"
    return next((advice for words, advice in _ADVICE.items() if re.search(words, said)), "")


class OnceAMinute(logging.Filter):
    """A filter that drops a record about Redis if one with the same reason passed less than a minute ago."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}  # by reason

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE) or (record.msg == _CELERYS_LOSS and is_refusal(_error_in(record))):
            return False
        if not _is_about_redis(record):
            return True
        reason, now = _reason(record), time.monotonic()
        is_due = now - self._logged_at.get(reason, -_SILENT_SECONDS) >= _SILENT_SECONDS
        if is_due:
            self._logged_at[reason] = now
        return is_due


def _is_about_redis(record: logging.LogRecord) -> bool:
    if record.name == _CELERYS_LOGGER:
        return str(record.msg).startswith(_CELERYS_ATTEMPT)
    return getattr(record, "is_about_redis", False)


def _reason(record: logging.LogRecord) -> str:
    """Return the same reason for all errors of a lost connection, and the first words of any other error."""
    error = _error_in(record)
    if type(error) in _NO_CONNECTION or isinstance(error, OSError):
        return "no connection"
    by = "Celery: " if record.name == _CELERYS_LOGGER else ""  # its message does not say what to do, but ours does
    return by + " ".join(str(error or "").split()[:_REASON_WORDS])


def _error_in(record: logging.LogRecord) -> BaseException | None:
    arguments = record.args if isinstance(record.args, tuple) else ()
    logged = next((argument for argument in arguments if isinstance(argument, Exception)), None)
    return logged.__cause__ if isinstance(logged, TransientError) else logged
