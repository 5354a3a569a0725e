"""A log says once a minute that Redis is away, and at once if the reason changes."""

import logging
from threading import Event

import pytest
import redis
from redis._parsers.base import BaseParser

from fleet.errors import Stopped
from fleet.process.redis_away import ABOUT_REDIS, OnceAMinute, wait_for_redis

REFUSED, FULL = ConnectionError("Error 111 connecting to a:6379."), ValueError("OOM command not allowed")
OOM = "OOM command not allowed when used memory > 'maxmemory'."
REPLICA = "READONLY You can't write against a read only replica."
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


@pytest.mark.parametrize(
    "answer",
    [
        OOM,
        f"{OOM} script: 9f6c, on @user_script:3.",
        f"ERR Error running script (call to f_9f6c): @user_script:3: @user_script: 3: -{OOM}",
        REPLICA,
        f"{REPLICA} script: 9f6c, on @user_script:27.",
        f"ERR Error running script (call to f_9f6c): @user_script:27: @user_script: 27: -{REPLICA}",
        "LOADING Valkey is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "NOREPLICAS Not enough good replicas to write.",
        "WRONGPASS invalid username-password pair or user is disabled.",
    ],
)
def test_a_server_that_refuses_for_now_is_waited_for(answer: str) -> None:
    """The exceptions that the client raises for each answer. It removes the codes that it knows from the text."""
    stopping, asked = Event(), []

    def refused() -> None:
        asked.append(answer)
        stopping.set()
        raise BaseParser.parse_error(answer)

    with pytest.raises(Stopped):
        wait_for_redis(refused, stopping)

    assert asked == [answer]


def test_another_error_is_raised_at_once() -> None:
    def wrong() -> None:
        raise BaseParser.parse_error("ERR Error running script: attempt to compare nil with number")

    with pytest.raises(redis.ResponseError, match="compare nil"):
        wait_for_redis(wrong, Event())
