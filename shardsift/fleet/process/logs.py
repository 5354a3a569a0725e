"""Format log lines: a sentence for people, then its fields for programs, and no secrets.

    … INFO Shard 00042 of 5b1c…: 900 rows in, 104 kept, 2 errored [run_id=5b1c… shard=00042 attempt=1 rows=900 seconds=8.3]

With SHARDSIFT_LOG_FORMAT=json, each line is a JSON object. Pass fields as `extra=` of a log call.
"""

import copy
import json
import logging
import os
import sys
from datetime import UTC, datetime

from shardsift.fleet.process.redact import all_redacted, redacted
from shardsift.fleet.process.redis_away import OnceAMinute

LINE = "%(asctime)s %(levelname)s %(message)s"
FIELDS = ("run_id", "shard", "attempt", "rows", "seconds")
WORKER_NAME = "SHARDSIFT_WORKER_NAME"  # environment variable with the name of a worker within its supervisor
LOG_FORMAT = "SHARDSIFT_LOG_FORMAT"


def is_json() -> bool:
    """Return whether logs are JSON. Reads the environment, because logging begins before settings are read."""
    return os.environ.get(LOG_FORMAT) == "json"


class FleetFormatter(logging.Formatter):
    """A formatter that adds a record's FIELDS, such as `run_id`, and removes secrets.

    `inner` formats the line and its traceback. If logs are JSON, it formats only the traceback.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return self._as_json(record) if is_json() else redacted(self._inner.format(_with_fields(record)))

    def _as_json(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            "worker": os.environ.get(WORKER_NAME),
            **{name: getattr(record, name, None) for name in FIELDS},
            "traceback": self._inner.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps(all_redacted({name: value for name, value in line.items() if value is not None}), default=str)


def log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FleetFormatter(logging.Formatter(LINE)))
    handler.addFilter(OnceAMinute())
    logging.basicConfig(level="INFO", handlers=[handler], force=True)


def write_last_line(program: str, reason: str) -> None:
    """Write to stderr why a service ends: `finalizer: No Redis answers …`, or a JSON line."""
    record = logging.makeLogRecord({"levelno": logging.ERROR, "levelname": "ERROR", "msg": "%s", "args": (reason,)})
    sys.stderr.write(
        (FleetFormatter(logging.Formatter()).format(record) if is_json() else f"{program}: {reason}") + "\n"
    )


def _with_fields(record: logging.LogRecord) -> logging.LogRecord:
    """Append the record's FIELDS to the first line of its message.

    Changes only a copy, because other handlers share the record.
    """
    fields = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
    if not fields:
        return record
    sentence, newline, rest = record.getMessage().partition("\n")
    shown = copy.copy(record)
    shown.msg, shown.args = f"{sentence} [{fields}]{newline}{rest}", None
    return shown
