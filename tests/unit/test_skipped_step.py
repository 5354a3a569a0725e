"""What a worker cannot tell Redis is one sentence in its log, which says that nothing is to do."""

import logging

import pytest
import redis

from shardsift.worker.service.attempt import redis_may_be_away


def test_a_step_that_redis_did_not_take_is_told_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), redis_may_be_away():
        raise redis.ConnectionError("Error 111 connecting to box:6379. Connection refused.")

    assert caplog.messages == [
        "A step was skipped, which the next sweep of the finalizer makes up for: "
        "Error 111 connecting to box:6379. Connection refused."
    ]
