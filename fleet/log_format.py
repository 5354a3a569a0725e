"""Format log lines: a sentence for people, then its fields for programs, and no secrets.

    … INFO Shard 00042 of 5b1c…: 900 rows in, 104 kept, 2 errored [run_id=5b1c… shard=00042 attempt=1 rows=900 seconds=8.3]

Pass fields as `extra=` of a log call.
"""

import copy
import logging

from fleet.redact import redacted

LINE = "%(asctime)s %(levelname)s %(message)s"
FIELDS = ("run_id", "shard", "attempt", "rows", "seconds")


class FleetFormatter(logging.Formatter):
    """Adds the fields and removes secrets. Wraps another formatter, which turns a traceback into text."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redacted(self._inner.format(_with_fields(record)))


def _with_fields(record: logging.LogRecord) -> logging.LogRecord:
    """The record with its fields at the end of the first line. Other handlers get the original record."""
    fields = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
    if not fields:
        return record
    sentence, newline, rest = record.getMessage().partition("\n")
    shown = copy.copy(record)
    shown.msg, shown.args = f"{sentence} [{fields}]{newline}{rest}", None
    return shown
