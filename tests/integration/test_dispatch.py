"""Messages are hints: each names a run and a shard, a lost one is sent again, and one too many does no harm."""

import base64
import json
from typing import Any

import pytest
from celery import Celery

from fleet.broker import make_app
from fleet.dispatch import send_due_shards, send_finalize
from fleet.errors import UsageError
from fleet.ledger import Claim, Ledger, Refusal
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN, SCORE_SHARD
from fleet.settings import Settings
from fleet.spec import RunSpec
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until

A, B = a_shard("crawl/a"), a_shard("crawl/b")


@pytest.fixture
def spec(ledger: Ledger) -> RunSpec:
    spec = a_spec()
    ledger.create_run(spec, [A, B], now=1.0)
    return spec


def send(app: Celery, ledger: Ledger, spec: RunSpec, *, resend_seconds: float = 60.0) -> int:
    return send_due_shards(app, ledger, spec.run_id, resend_seconds=resend_seconds)


def messages(ledger: Ledger, queue: str) -> list[dict[str, Any]]:
    return [json.loads(message) for message in reversed(ledger.redis.lrange(queue, 0, -1))]


def body(message: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


def test_messages_wait_in_the_scorers_queue_as_json(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    assert send(app, ledger, spec) == 2

    sent = messages(ledger, spec.queue)
    assert [message["content-type"] for message in sent] == ["application/json"] * 2
    assert [message["headers"]["task"] for message in sent] == [SCORE_SHARD] * 2


def test_a_message_says_run_and_shard_and_nothing_else(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)

    arguments = [body(message)[:2] for message in messages(ledger, spec.queue)]
    assert sorted(arguments, key=str) == [
        [[], {"version": 1, "run_id": spec.run_id, "shard": shard.name}] for shard in (A, B)
    ]


def test_a_task_is_named_by_its_shard_in_flower(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    ledger.forget_messages(spec.run_id)
    send(app, ledger, spec)

    ids = [message["headers"]["id"] for message in messages(ledger, spec.queue)]
    assert len(set(ids)) == 4
    assert sum(task_id.startswith(f"{spec.run_id}:{A.name}:") for task_id in ids) == 2


def test_nothing_due_sends_nothing(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)

    assert send(app, ledger, spec) == 0
    assert len(messages(ledger, spec.queue)) == 2


def test_a_run_of_thousands_is_sent_whole(app: Celery, ledger: Ledger) -> None:
    spec = a_spec(output_uri="memory://many")
    ledger.create_run(spec, [a_shard(f"{number:04}") for number in range(2_100)], now=1.0)

    assert send(app, ledger, spec) == 2_100

    assert len({body(message)[1]["shard"] for message in messages(ledger, spec.queue)}) == 2_100


def test_a_lost_message_is_sent_again_once_the_queue_is_empty(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    ledger.redis.delete(spec.queue)

    wait_until(lambda: send(app, ledger, spec, resend_seconds=0.05), description="the messages are old", seconds=5)

    assert {body(message)[1]["shard"] for message in messages(ledger, spec.queue)} == {A.name, B.name}


def test_a_message_is_not_sent_again_while_others_wait(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    lost = ledger.redis.rpop(spec.queue)
    sent_key = f"shardsift:run:{spec.run_id}:sent"
    ledger.redis.zadd(sent_key, {A.name: 0, B.name: 0})  # both were sent long ago

    assert lost is not None
    assert send(app, ledger, spec, resend_seconds=0.05) == 0

    ledger.redis.delete(spec.queue)
    assert send(app, ledger, spec, resend_seconds=0.05) == 2


def test_a_message_that_comes_twice_finds_the_shard_taken_or_done(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    ledger.forget_messages(spec.run_id)
    send(app, ledger, spec)
    assert len(messages(ledger, spec.queue)) == 4

    claim = ledger.claim(spec.run_id, A.name, "w1")
    while_running = ledger.claim(spec.run_id, A.name, "w2")
    assert isinstance(claim, Claim)
    ledger.complete(claim, a_receipt(spec.run_id, A))
    when_done = ledger.claim(spec.run_id, A.name, "w2")

    assert (while_running, when_done) == (Refusal.RUNNING, Refusal.DONE)
    assert ledger.counts(spec.run_id).rows_in == 10


def test_the_finalizer_is_asked_in_its_own_queue(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send_finalize(app, spec.run_id)

    (message,) = messages(ledger, FINALIZE_QUEUE)
    assert message["headers"]["task"] == FINALIZE_RUN
    assert body(message)[:2] == [[], {"version": 1, "run_id": spec.run_id}]


def test_without_a_redis_there_is_no_broker_and_that_is_told() -> None:
    settings = Settings(redis_url=None)

    make_app("test", settings).close()

    with pytest.raises(UsageError, match="Set REDIS_URL"):
        Ledger.connect(settings)
