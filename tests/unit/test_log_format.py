"""A log line is a sentence with its fields, and holds no secret."""

import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from shardsift.fleet.process.logs import FleetFormatter

LINE = logging.Formatter("%(levelname)s %(message)s")


def a_record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    logger = logging.getLogger("test")
    return logger.makeRecord("test", logging.INFO, __file__, 1, message, arguments, None, extra=fields)


def a_failure(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    """A record with a traceback that names a signed URL."""
    try:
        raise OSError("403 for https://bucket.example/f?Signature=s3cret")
    except OSError:
        logger = logging.getLogger("test")
        return logger.makeRecord("test", logging.ERROR, __file__, 1, message, arguments, sys.exc_info(), extra=fields)


def test_fields_follow_the_sentence() -> None:
    record = a_record("Shard %s: %d kept", "a/b", 3, run_id="5b1c", shard="a/b", attempt=2, rows=10, seconds=0.5)

    line = FleetFormatter(LINE).format(record)

    assert line == "INFO Shard a/b: 3 kept [run_id=5b1c shard=a/b attempt=2 rows=10 seconds=0.5]"


def test_fields_stand_before_a_trace() -> None:
    line = FleetFormatter(LINE).format(a_record("It died\n%s", "File x, line 1", shard="a"))

    assert line == "INFO It died [shard=a]\nFile x, line 1"


def test_json_has_a_field_for_each_fact_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSIFT_LOG_FORMAT", "json")
    monkeypatch.setenv("SHARDSIFT_WORKER_NAME", "gpu0")
    line = FleetFormatter(LINE).format(a_failure("Shard %s\nfailed", "a", shard="a", rows=7))

    found = json.loads(line)
    assert "\n" not in line
    assert found.pop("traceback").startswith("Traceback (most recent call last)")
    assert datetime.fromisoformat(found.pop("time")).tzinfo is UTC
    assert found == {"level": "ERROR", "message": "Shard a\nfailed", "worker": "gpu0", "shard": "a", "rows": 7}
    assert "s3cret" not in line
