"""Say once a minute that Redis is away or full, and not at each try.

A process that cannot reach Redis tries again every second or so, in several threads, and so does Celery. Their log calls
pass `extra=ABOUT_REDIS`, and the filter lets one of them through.
"""

import logging
import os
import time
from pathlib import Path

ABOUT_REDIS = {"is_about_redis": True}
TOLD_FILE = "SHARDSIFT_REDIS_AWAY_FILE"  # variable with a file that processes share which log to the same place
_SILENT_SECONDS = 60.0
_CELERYS = ("consumer: Cannot connect to", "%s (%r)")  # its templates about a lost connection
_NOISE = "Skipping prefetch count reduction"


class OnceAMinute(logging.Filter):
    """Drops records about Redis for a minute after one of them."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE):
            return False
        if not _is_about_redis(record):
            return True
        if 0 <= time.time() - self._last_told() < _SILENT_SECONDS:
            return False
        self._note_told()
        return True

    def _last_told(self) -> float:
        try:
            return Path(os.environ[TOLD_FILE]).stat().st_mtime
        except (KeyError, OSError):
            return self._told_at

    def _note_told(self) -> None:
        self._told_at = time.time()
        if file := os.environ.get(TOLD_FILE):
            try:
                Path(file).touch()
            except OSError:  # the folder of a worker that ends
                return


def _is_about_redis(record: logging.LogRecord) -> bool:
    if record.name == "celery.worker.consumer.consumer":
        return str(record.msg).startswith(_CELERYS)
    return getattr(record, "is_about_redis", False)
