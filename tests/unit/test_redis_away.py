"""A log says once a minute that Redis is away, and at once if the reason changes."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from fleet.process.redis_away import ABOUT_REDIS, TOLD_FILE, OnceAMinute

REFUSED, FULL = ConnectionError("Error 111 connecting to a:6379."), ValueError("OOM command not allowed")
CELERYS = "celery.worker.consumer.consumer"


def record(message: str, *arguments: object, name: str = "worker", **fields: object) -> logging.LogRecord:
    return logging.getLogger(name).makeRecord(
        name, logging.WARNING, __file__, 1, message, arguments, None, extra=fields
    )


def waiting(error: Exception) -> logging.LogRecord:
    return record("Waiting for Redis: %s", error, **ABOUT_REDIS)


def test_one_line_of_an_outage_passes_from_any_logger() -> None:
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
    file.write_text(str(time.time() - 61))
    assert [child.filter(waiting(REFUSED)), parent.filter(waiting(REFUSED))] == [True, False]


def test_processes_that_lose_their_connection_at_once_say_it_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(TOLD_FILE, str(tmp_path / "told"))
    together = threading.Barrier(16)

    def passed(_: int) -> bool:
        together.wait(timeout=60)
        return OnceAMinute().filter(waiting(REFUSED))

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(passed, range(16))) == 1


@pytest.mark.parametrize(
    "other",
    [
        redis.ConnectionError("Error while reading from unix:///s : (104, 'Connection reset by peer')"),
        redis.ConnectionError("Connection closed by server."),
        redis.ConnectionError("Error 2 connecting to /s. No such file or directory."),
        redis.TimeoutError("Timeout reading from socket"),
    ],
)
def test_a_lost_connection_is_one_reason_however_it_is_noticed(other: Exception) -> None:
    once = OnceAMinute()

    assert [once.filter(waiting(REFUSED)), once.filter(waiting(other))] == [True, False]


def test_a_wrong_password_is_told_although_the_connection_was_lost_before() -> None:
    once = OnceAMinute()

    wrong = redis.AuthenticationError("WRONGPASS invalid username-password pair or user is disabled.")

    assert [once.filter(waiting(REFUSED)), once.filter(waiting(wrong))] == [True, True]
