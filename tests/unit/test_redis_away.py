"""A log says once a minute that Redis is away, and at once if the reason changes."""

import logging
import re
from collections.abc import Iterator
from threading import Event

import pytest
import redis
from kombu.exceptions import OperationalError
from redis._parsers.base import BaseParser

from shardsift.fleet.errors import Stopped
from shardsift.fleet.process.broker import errors_of_redis
from shardsift.fleet.process.command_line import run_command_line
from shardsift.fleet.process.redis_away import ABOUT_REDIS, OnceAMinute, as_ours, wait_for_redis

REFUSED, FULL = ConnectionError("Error 111 connecting to a:6379."), ValueError("OOM command not allowed")
OOM = "OOM command not allowed when used memory > 'maxmemory'."
REPLICA = "READONLY You can't write against a read only replica."
NO_RIGHT = "NOPERM User w1 has no permissions to run the 'lpush' command"
RIGHT_OF_A_SCRIPT = (
    "ERR ACL failure in script: User w1 has no permissions to run the 'hset' command script: 9f6c, on @user_script:3."
)
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
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


def refusal(answer: str) -> redis.RedisError:
    """The exception that the client raises for an answer. It removes the codes that it knows from the text."""
    return BaseParser.parse_error(answer)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([REFUSED, FULL, FULL], [True, True, False]),
        ([as_ours(refusal(NO_RIGHT)), as_ours(refusal(OOM)), as_ours(refusal(NO_RIGHT))], [True, True, False]),
        # A lost connection is one reason however it is noticed.
        ([REFUSED, redis.ConnectionError("Error while reading from unix:///s : (104, 'reset')")], [True, False]),
        ([REFUSED, redis.TimeoutError("Timeout reading from socket")], [True, False]),
        # A wrong password is told although the connection was lost before.
        ([REFUSED, redis.AuthenticationError(WRONG_PASSWORD)], [True, True]),
    ],
)
def test_a_reason_passes_once(errors: list[Exception], expected: list[bool]) -> None:
    once = OnceAMinute()

    assert [once.filter(waiting(error)) for error in errors] == expected


UNKNOWN_COMMAND = "ERR unknown command 'EVALSHA', with args beginning with: '9f6c' '13'"


@pytest.mark.parametrize(
    ("answer", "what_to_do"),
    [
        (f"{OOM} script: 9f6c, on @user_script:3.", "(OOM): raise its maxmemory"),
        (REPLICA, "Name its primary"),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "Name its primary"),
        ("LOADING Valkey is loading the dataset in memory", "Redis does not answer (Valkey is loading"),
        ("MISCONF Errors writing to the AOF file: No space left on device", "Its log says more"),
        (WRONG_PASSWORD, "Check the user and the password"),
        (RIGHT_OF_A_SCRIPT, "rights of `shardsift`"),
        ("ERR The user executing the script can't run this command or subcommand", "rights of `shardsift`"),
        (UNKNOWN_COMMAND, "Use a server that has it"),
        ("ERR DB index is out of range", "Name another database"),
    ],
)
def test_a_server_that_refuses_for_now_is_waited_for_and_reported_with_what_to_do(answer: str, what_to_do: str) -> None:
    stopping, asked = Event(), []

    def refused() -> None:
        asked.append(answer)
        stopping.set()
        raise refusal(answer)

    with pytest.raises(Stopped):
        wait_for_redis(refused, stopping)

    assert asked == [answer]
    assert what_to_do in str(as_ours(refusal(answer)))


@pytest.mark.parametrize(
    ("answer", "what_to_do"),
    [("ERR Error running script: attempt to compare nil with number", ""), (WRONG_TYPE, "Delete it")],
)
def test_an_error_of_one_run_is_raised_at_once(answer: str, what_to_do: str) -> None:
    def wrong() -> None:
        raise refusal(answer)

    with pytest.raises(redis.ResponseError, match=answer.removeprefix("ERR ")):
        wait_for_redis(wrong, Event())
    assert what_to_do in str(as_ours(refusal(answer)))


def of_library(kind: type[redis.RedisError]) -> Iterator[type[redis.RedisError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == kind.__module__:
            yield from of_library(child)


@pytest.mark.parametrize("kind", sorted(set(of_library(redis.RedisError)), key=str))
def test_every_error_of_the_client_becomes_ours_in_one_line(kind: type[redis.RedisError]) -> None:
    error = kind("12182\n a:6379\n")  # as the errors of a cluster must be written

    ours = as_ours(error, "Redis at a")

    assert re.match(r"Redis at a (refuses this|does not answer) \(.*12182 a:6379\)\.", str(ours))
    assert ours.__cause__ is error


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (redis.OutOfMemoryError("OOM"), redis.OutOfMemoryError),
        (redis.TimeoutError("slow"), redis.TimeoutError),
        (ConnectionResetError("reset"), redis.ConnectionError),
        (None, redis.ConnectionError),
    ],
)
def test_an_error_of_celery_becomes_that_of_redis(cause: Exception | None, kind: type[Exception]) -> None:
    with pytest.raises(redis.RedisError) as error, errors_of_redis():
        raise OperationalError("all connections are in use") from cause

    assert type(error.value) is kind


def test_a_command_ends_with_that_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise refusal(RIGHT_OF_A_SCRIPT)

    with pytest.raises(SystemExit) as ended:
        run_command_line("producer", refused)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("producer: Redis refuses this (ACL failure in script")
