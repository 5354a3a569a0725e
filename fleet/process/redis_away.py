"""Say once a minute that Redis is away or full, and not at each try.

A process that cannot reach Redis tries again every second or so, in several threads, and so does Celery. Their log calls
pass `extra=ABOUT_REDIS`, and the filter lets one of them through, and another one if the reason changes.
"""

import fcntl
import logging
import os
import time
import zlib
from pathlib import Path

import redis

ABOUT_REDIS = {"is_about_redis": True}
TOLD_FILE = "SHARDSIFT_REDIS_AWAY_FILE"  # variable with a path that processes share which log to the same place
_SILENT_SECONDS = 60.0
_NO_CONNECTION = (redis.ConnectionError, redis.TimeoutError)  # and not their kinds, such as a wrong password
_REASON_WORDS = 3  # such as "OOM command not"
_CELERYS_LOGGER, _CELERYS_ATTEMPT = "celery.worker.consumer.consumer", "consumer: Cannot connect to"
_NOISE = "Skipping prefetch count reduction"


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
        return self._takes_turn(_reason(record))

    def _takes_turn(self, reason: str) -> bool:
        """True if it was not told in the last minute; from now on it counts as told."""
        if file := _file(reason):
            try:
                return _takes_turn_in(file)
            except OSError:  # the folder of a worker that ends
                pass
        now = time.time()
        is_due = not 0 <= now - self._told_at.get(reason, 0.0) < _SILENT_SECONDS
        if is_due:
            self._told_at[reason] = now
        return is_due


def _takes_turn_in(file: Path) -> bool:
    """The same by the time in a file. It is locked, because all processes of a worker lose their connection at once."""
    with file.open("a+") as told:
        fcntl.flock(told, fcntl.LOCK_EX)
        told.seek(0)
        now = time.time()  # not before the file was locked: another process may have told of it meanwhile
        is_due = not 0 <= now - float(told.read() or 0) < _SILENT_SECONDS
        if is_due:
            told.truncate(0)
            told.write(str(now))
        return is_due


def _file(reason: str) -> Path | None:
    path = os.environ.get(TOLD_FILE)
    return Path(f"{path}-{zlib.crc32(reason.encode())}") if path else None


def _is_about_redis(record: logging.LogRecord) -> bool:
    if record.name == _CELERYS_LOGGER:
        return str(record.msg).startswith(_CELERYS_ATTEMPT)
    return getattr(record, "is_about_redis", False)


def _reason(record: logging.LogRecord) -> str:
    """The same for all that a lost connection raises. Of other errors among the arguments, their first words."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = next((argument for argument in arguments if isinstance(argument, Exception)), "")
    if type(error) in _NO_CONNECTION or isinstance(error, OSError):
        return "no connection"
    return " ".join(str(error).split()[:_REASON_WORDS])
