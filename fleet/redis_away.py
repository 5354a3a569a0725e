"""Say once a minute that Redis is away or full, and not at each try.

A process that cannot reach Redis tries again every second or so, in several threads, and so does Celery. Their log calls
pass `extra=ABOUT_REDIS`, and the filter lets one of them through, and another one if the reason changes.
"""

import logging
import os
import time
import zlib
from pathlib import Path

ABOUT_REDIS = {"is_about_redis": True}
TOLD_FILE = "SHARDSIFT_REDIS_AWAY_FILE"  # variable with a path that processes share which log to the same place
_SILENT_SECONDS = 60.0
_REASON_WORDS = 3  # such as "Error 111 connecting" or "OOM command not"
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
        reason = _reason(record)
        if 0 <= time.time() - self._last_told(reason) < _SILENT_SECONDS:
            return False
        self._note_told(reason)
        return True

    def _last_told(self, reason: str) -> float:
        file = _file(reason)
        try:
            return file.stat().st_mtime if file else self._told_at.get(reason, 0.0)
        except OSError:  # not told yet
            return 0.0

    def _note_told(self, reason: str) -> None:
        self._told_at[reason] = time.time()
        if file := _file(reason):
            try:
                file.touch()
            except OSError:  # the folder of a worker that ends
                return


def _file(reason: str) -> Path | None:
    path = os.environ.get(TOLD_FILE)
    return Path(f"{path}-{zlib.crc32(reason.encode())}") if path else None


def _is_about_redis(record: logging.LogRecord) -> bool:
    if record.name == _CELERYS_LOGGER:
        return str(record.msg).startswith(_CELERYS_ATTEMPT)
    return getattr(record, "is_about_redis", False)


def _reason(record: logging.LogRecord) -> str:
    """The first words of the error among the arguments."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = next((argument for argument in arguments if isinstance(argument, Exception)), "")
    return " ".join(str(error).split()[:_REASON_WORDS])
