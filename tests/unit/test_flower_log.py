"""Flower's log says that workers do not answer only if there are any."""

import logging
import time

import pytest
from celery import Celery
from flower.app import Flower

from shardsift.producer.flower.start import is_news

UNANSWERED, BROKEN = (
    logging.makeLogRecord({"msg": message})
    for message in ("Inspect method conf failed", "Inspect method conf failed: Redis is away")
)


@pytest.fixture
def application() -> Flower:
    return Flower(capp=Celery(set_as_current=False))


def test_an_unanswered_question_is_not_logged_while_no_worker_is_there(application: Flower) -> None:
    assert not is_news(application, UNANSWERED)
    assert is_news(application, BROKEN)


def test_a_worker_that_does_not_answer_is_news(application: Flower) -> None:
    now = time.time()
    beat = {"type": "worker-heartbeat", "hostname": "w1", "timestamp": now, "local_received": now}
    beat |= {"freq": 2.0, "clock": 1}
    application.events.state.event(beat)

    assert is_news(application, UNANSWERED)
