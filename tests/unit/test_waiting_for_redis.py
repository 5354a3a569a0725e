"""Which errors of Redis a worker waits for, and which not."""

from threading import Event

import pytest
import redis
from redis._parsers.base import BaseParser

from fleet.errors import Stopped
from worker.service.waiting import wait_for_redis

FULL = "OOM command not allowed when used memory > 'maxmemory'."
REPLICA = "READONLY You can't write against a read only replica."


@pytest.mark.parametrize(
    "answer",
    [
        FULL,
        f"{FULL} script: 9f6c, on @user_script:3.",
        f"ERR Error running script (call to f_9f6c): @user_script:3: @user_script: 3: -{FULL}",
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
