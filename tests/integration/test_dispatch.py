"""Messages are hints: each names a run and a shard, lost ones are sent again, and duplicates do no harm.

A queue holds few of them however long the run is, and shards that were started before come first.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from celery import Celery, signals

from shardsift.fleet.dispatch import SCORE_SHARD, queue_lost_shards, send_due_shards, top_up
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app, queue_length, queue_lists
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import RunSpec
from support.ledger_states import claimed
from support.records import a_shard, a_spec

MESSAGES_AHEAD = 40  # 2,000 in a fleet
A, B = a_shard("crawl/a"), a_shard("crawl/b")


@pytest.fixture
def spec(ledger: Ledger) -> RunSpec:
    spec = a_spec()
    ledger.create_run(spec, [A, B], now=1.0)
    return spec


def send(app: Celery, ledger: Ledger, spec: RunSpec) -> int:
    """Send due shards as a sweep does."""
    queue_lost_shards(ledger, spec.run_id, resend_seconds=60)
    return send_due_shards(app, ledger, spec.run_id)


def messages(ledger: Ledger, queue: str) -> list[dict[str, Any]]:
    """The messages in the order in which workers take them."""
    return [
        json.loads(message) for name in queue_lists(queue) for message in reversed(ledger.redis.lrange(name, 0, -1))
    ]


def age_messages(ledger: Ledger, spec: RunSpec) -> None:
    """Make all messages look as if they were sent long ago."""
    sent = f"shardsift:run:{spec.run_id}:sent"
    ledger.redis.zadd(sent, dict.fromkeys(ledger.redis.zrange(sent, 0, -1), 1))


def taken(app: Celery, queue: str) -> Iterator[str]:
    """The shards of a queue's messages, as a worker takes them."""
    with app.connection_for_read() as connection:
        waiting = kombu.Queue(queue, routing_key=queue)(connection.channel())
        while message := waiting.get(accept=["json"]):
            message.ack()
            yield message.decode()[1]["shard"]


def body(message: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


def test_a_message_is_json_that_says_run_and_shard_and_nothing_else(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    assert [send(app, ledger, spec), send(app, ledger, spec)] == [2, 0]

    sent = messages(ledger, spec.queue)
    assert [message["content-type"] for message in sent] == ["application/json"] * 2
    assert [message["headers"]["task"] for message in sent] == [SCORE_SHARD] * 2
    arguments = [body(message)[:2] for message in sent]
    assert sorted(arguments, key=str) == [[[], {"run_id": spec.run_id, "shard": shard.name}] for shard in (A, B)]


def test_messages_go_to_the_ledgers_redis_in_a_process_of_another_fleet_of_celery(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, ledger: Ledger, spec: RunSpec
) -> None:
    for kind in ("BROKER", "BROKER_READ", "BROKER_WRITE"):
        monkeypatch.setenv(f"CELERY_{kind}_URL", "memory://")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "db+nothing://")
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "no_such_module")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "no_such_site.settings")
    app = make_app("of-a-site", Settings(redis_url=redis_url), is_current=False)

    send(app, ledger, spec)

    assert set(taken(app, spec.queue)) == {A.name, B.name}
    assert not messages(ledger, spec.queue)


def test_a_task_is_named_by_its_shard_in_flower(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    ledger.forget_messages(spec.run_id)
    send(app, ledger, spec)

    ids = [message["headers"]["id"] for message in messages(ledger, spec.queue)]
    assert len(set(ids)) == 4
    assert sum(task_id.startswith(f"{spec.run_id}:{A.name}:") for task_id in ids) == 2


def test_each_run_of_one_machine_has_a_queue_of_its_own(app: Celery, redis_url: str, ledger: Ledger) -> None:
    """A run that was stopped must not occupy the workers of one beside it."""
    machine = Ledger.connect(Settings(redis_url=redis_url, redis_is_embedded=True))
    runs = [a_spec(output_uri=f"memory://{number}") for number in range(2)]
    for run in runs:
        machine.create_run(run, [A], now=1.0)
        send(app, machine, run)

    queues = [machine.message_queue(run.run_id, run.queue) for run in runs]

    assert [len(messages(machine, queue)) for queue in (*queues, runs[0].queue)] == [1, 1, 0]


@pytest.fixture(autouse=True)
def few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardsift.fleet.dispatch._MESSAGES_AHEAD", MESSAGES_AHEAD)


@pytest.fixture
def long_run(ledger: Ledger) -> RunSpec:
    """A run of 200 shards."""
    spec = a_spec(output_uri="memory://many")
    ledger.create_run(spec, [a_shard(f"{number:04}") for number in range(200)], now=1.0)
    return spec


def test_a_queue_holds_few_messages_and_is_refilled_in_time(app: Celery, ledger: Ledger, long_run: RunSpec) -> None:
    sent = [send(app, ledger, long_run), send(app, ledger, long_run)]
    workers = taken(app, long_run.queue)
    for _ in range(7):
        next(workers)

    assert sent == [MESSAGES_AHEAD, 0]
    assert queue_length(ledger.redis, long_run.queue) == MESSAGES_AHEAD - 7
    assert send(app, ledger, long_run) == 7
    assert queue_length(ledger.redis, long_run.queue) == MESSAGES_AHEAD


def test_a_queue_is_refilled_after_a_shard_only_if_it_is_half_empty(
    app: Celery, ledger: Ledger, long_run: RunSpec
) -> None:
    send(app, ledger, long_run)
    workers = taken(app, long_run.queue)

    sent, early = [], MESSAGES_AHEAD // 2 - 3
    for _ in range(early):
        next(workers)
    for taken_so_far in range(early + 1, MESSAGES_AHEAD // 2 + 2):
        next(workers)
        if now := top_up(app, ledger, long_run.run_id, long_run.queue):
            sent.append((taken_so_far, now))

    assert sent == [(MESSAGES_AHEAD // 2 + 1, MESSAGES_AHEAD // 2 + 1)]


def test_the_ledger_is_not_asked_for_shards_of_a_run_that_is_sent(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    ledger.redis.config_resetstat()

    sent = top_up(app, ledger, spec.run_id, spec.queue)

    assert sent == 0
    assert "cmdstat_evalsha" not in ledger.redis.info("commandstats")


@pytest.mark.slow
def test_refilling_a_queue_ends_if_workers_keep_emptying_it(app: Celery, ledger: Ledger, long_run: RunSpec) -> None:
    send(app, ledger, long_run)
    workers = taken(app, long_run.queue)
    for _ in range(10):
        next(workers)

    def take_one(**_: object) -> None:
        next(workers)

    signals.before_task_publish.connect(take_one)
    try:
        assert send(app, ledger, long_run) == 10
    finally:
        signals.before_task_publish.disconnect(take_one)


def test_shards_that_were_started_overtake_fresh_ones(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    ledger.redis.lpush(queue_lists(spec.queue)[-1], *["{}"] * MESSAGES_AHEAD)  # that of fresh shards
    for shard in (A, B):
        ledger.release(claimed(ledger, spec.run_id, shard))

    assert send(app, ledger, spec) == 2, "though the queue is full"

    workers = taken(app, spec.queue)
    assert {next(workers), next(workers)} == {A.name, B.name}


def test_a_lost_message_is_sent_again_later_though_others_wait(app: Celery, ledger: Ledger, spec: RunSpec) -> None:
    send(app, ledger, spec)
    assert next(taken(app, spec.queue)) == A.name  # and lost
    ledger.redis.rpush(spec.queue, b"\xff none of ours", "{}", '{"headers": 7}')
    young = send(app, ledger, spec)
    age_messages(ledger, spec)

    assert [young, send(app, ledger, spec), send(app, ledger, spec)] == [0, 1, 0]
    assert queue_length(ledger.redis, spec.queue) == 2 + 3
