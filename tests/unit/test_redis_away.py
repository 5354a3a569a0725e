"""A log says once a minute that Redis is away, and at once if the reason changes."""

import logging
import os
import time
from pathlib import Path

import pytest

from fleet.redis_away import ABOUT_REDIS, TOLD_FILE, OnceAMinute

REFUSED, FULL = ConnectionError("Error 111 connecting to a:6379."), ValueError("OOM command not allowed")
CELERYS = "celery.worker.consumer.consumer"


def record(message: str, *arguments: object, name: str = "worker", **fields: object) -> logging.LogRecord:
    return logging.getLogger(name).makeRecord(
        name, logging.WARNING, __file__, 1, message, arguments, None, extra=fields
    )


def waiting(error: Exception) -> logging.LogRecord:
    return record("Waiting for Redis: %s", error, **ABOUT_REDIS)


def test_one_line_of_an_outage_passes_whoever_writes_it() -> None:
    once = OnceAMinute()

    celerys = record("consumer: Cannot connect to %s: %s.\n%s\n", "redis://a", REFUSED, "soon", name=CELERYS)
    passed = [once.filter(one) for one in (waiting(REFUSED), waiting(REFUSED), celerys)]

    assert passed == [True, False, False]


def test_another_reason_and_other_lines_pass() -> None:
    once = OnceAMinute()

    passed = [once.filter(one) for one in (waiting(REFUSED), waiting(FULL), record("Shard %s", "a"), waiting(FULL))]

    assert passed == [True, True, True, False]


def test_processes_with_a_common_file_say_it_once_between_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(TOLD_FILE, str(tmp_path / "told"))
    parent, child = OnceAMinute(), OnceAMinute()

    assert [parent.filter(waiting(REFUSED)), child.filter(waiting(REFUSED))] == [True, False]
    (file,) = tmp_path.iterdir()
    a_minute_ago = time.time() - 61
    os.utime(file, (a_minute_ago, a_minute_ago))
    assert child.filter(waiting(REFUSED))
