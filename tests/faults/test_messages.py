"""Messages are hints: if they are tripled, lost, taken by a dead worker, forged or of another release, no row is lost."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.worker.control import Panel

from shardsift.fleet.dispatch import SCORE_SHARD
from shardsift.fleet.process.broker import make_app, queue_length, queue_lists
from shardsift.fleet.process.children import Child
from shardsift.fleet.process.settings import Settings
from support.disturbed_runs import DisturbedRuns, child_of
from support.waiting import wait_until

LOG_LIMIT_BYTES = 1_000_000


@pytest.fixture
def app(runs: DisturbedRuns) -> Iterator[Celery]:
    """A foreign client that can write to the fleet's Redis."""
    app = make_app("foreign", Settings(redis_url=runs.fleet.redis_url))
    yield app
    app.close()


def taken_out(runs: DisturbedRuns, run_id: str) -> list[tuple[str, str]]:
    """Remove and return the messages of a run's queue, with the names of their lists."""
    client, lists = runs.fleet.ledger.redis, queue_lists(runs.fleet.ledger.spec(run_id).queue)
    messages = [(name, str(message)) for name in lists for message in client.lrange(name, 0, -1)]
    client.delete(*lists)
    return messages


def put_in(runs: DisturbedRuns, messages: list[tuple[str, str]]) -> None:
    pipeline = runs.fleet.ledger.redis.pipeline()
    for name, message in messages:
        pipeline.lpush(name, message)
    pipeline.execute()


@pytest.mark.faults
def test_a_message_that_a_frozen_worker_took_before_it_died_is_sent_again(runs: DisturbedRuns) -> None:
    """Redis hands a message to a worker that waits in BRPOP. If the worker never reads it, plain Celery has lost it."""
    run_id = runs.enqueue()
    client, queue = runs.fleet.ledger.redis, runs.fleet.ledger.spec(run_id).queue
    messages = taken_out(runs, run_id)

    with runs.worker("w1") as victim:
        child_of(victim)
        wait_until(lambda: frozen_in_brpop(runs, victim), description="the worker is frozen while it waits")
        put_in(runs, messages)
        assert queue_length(client, queue) == 5
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
    unacked = client.hlen("unacked")
    runs.serve_until_published(run_id)

    assert unacked == 0
    runs.check_each_row_scored_once(run_id)


def frozen_in_brpop(runs: DisturbedRuns, worker: Child) -> bool:
    """Wait until the worker blocks in BRPOP. It does so for a second at a time, and takes no message in between."""
    os.kill(worker.pid, signal.SIGSTOP)
    waiting = [client for client in runs.fleet.ledger.redis.client_list() if "b" in client["flags"]]
    if waiting and min(int(client["idle"]) for client in waiting) == 0:
        return True
    os.kill(worker.pid, signal.SIGCONT)
    return False


def forged(run_id: str) -> list[dict[str, Any]]:
    """Arguments of `send_task` for messages that the fleet itself never sends."""
    right = {"run_id": run_id, "shard": "000_00000"}
    return [
        {"kwargs": right | {"path": "/etc/passwd"}},
        {"kwargs": {"run_id": run_id}},
        {"kwargs": right | {"shard": "../../000_00000"}},
        {"kwargs": right | {"run_id": f"{run_id}\r\nDEL *\x1b[2J"}},
        {"kwargs": right | {"run_id": ["a", "b"]}},
        {"kwargs": right | {"shard": "x" * 10_000_000}},
        {"args": [run_id, "000_00000"]},
        {"kwargs": right, "serializer": "pickle"},
        {"name": "os.system", "kwargs": {"command": "true"}},
    ]


def junk(message: str) -> list[str]:
    """Contents of a queue that no client of Celery writes: among others, this message with each of its parts changed."""
    ours = json.loads(message) | {"body": base64.b64encode(b"[[], {}, {}]").decode()}
    headers, properties = ours["headers"], ours["properties"]
    odd: list[object] = [None, 5, "x", [], {}, ["x"], -1e300, {"__type__": "uuid", "__value__": "x"}, True]
    changed = [
        *({name: value for name, value in ours.items() if name != missing} for missing in ours),
        *(ours | {name: value} for name in ours for value in odd),
        *(
            ours | {"headers": headers | {name: value}}
            for name in (*headers, "compression", "method", "meth")
            for value in odd
        ),
        *(ours | {"properties": properties | {name: value}} for name in properties for value in odd),
        *(ours | {"body": base64.b64encode(json.dumps(body).encode()).decode()} for body in (*odd, [[], {}, {}, {}])),
        *(ours | {"body": base64.b64encode(body).decode()} for body in (b"", b"{", b"\xff\xfe", b"[" * 1_000_000)),
        ours | {"headers": headers | {"compression": "gzip"}},
        ours | {"headers": headers | {"timelimit": ["a", "b"]}},
        ours | {"headers": headers | {"timelimit": [1, 2, 3]}},
    ]
    plain = ["not json at all", "", "5", "null", "[]", "{}", '"x"', "NaN"]
    plain.append("\ud800".encode("utf-8", "surrogatepass").decode("latin1"))
    return [*plain, "[" * 2_000_000, '{"a":' * 500_000, *map(json.dumps, changed)]


@pytest.mark.faults
def test_forged_messages_and_junk_in_a_queue_are_logged_and_end_no_worker(runs: DisturbedRuns, app: Celery) -> None:
    run_id = runs.enqueue()
    ours, queue = taken_out(runs, run_id), runs.fleet.ledger.spec(run_id).queue
    client, contents = runs.fleet.ledger.redis, junk(ours[0][1])
    for content in contents:
        client.lpush(queue, content)
    for arguments in forged(run_id):
        app.send_task(**({"name": SCORE_SHARD, "queue": queue} | arguments))
    put_in(runs, ours)

    with runs.finalizer(), runs.worker() as worker:
        child = child_of(worker).pid
        for content in contents:
            client.publish("/0.celery.pidbox", content)
        runs.wait_until_published(run_id, seconds=90)
        wait_until(lambda: not queue_length(client, queue), description="all messages are answered")
        assert worker.poll() is None
        assert child_of(worker).pid == child

    assert client.hlen("unacked") == 0
    log = runs.fleet.log("w1").read_text()
    assert "Refused an element of a queue that is no message" in log
    assert "Refused a message that is not one of ours" in log
    assert len(log.encode()) < LOG_LIMIT_BYTES
    runs.check_each_row_scored_once(run_id)


@pytest.mark.faults
def test_remote_control_may_look_at_a_worker_and_leaves_it_and_its_log_alone(runs: DisturbedRuns, app: Celery) -> None:
    commands = set(Panel.data)
    assert {"shutdown", "pool_restart", "add_consumer", "cancel_consumer", "revoke", "terminate"} <= commands
    with runs.finalizer(), runs.worker() as worker:
        run_id = runs.enqueue()
        runs.wait_for_rows(run_id)
        child = child_of(worker).pid
        answers = {
            command: app.control.broadcast(command, reply=True, timeout=5, limit=1)
            for command in sorted(commands | {"nonsense"})
        }
        for command, arguments in {
            "add_consumer": {"queue": "other"},
            "cancel_consumer": {"queue": runs.fleet.ledger.spec(run_id).queue},
            "pool_grow": {"n": 3},
            "shutdown": {},
            "ping": {"nobody": "asks this"},
            "conf": {"with_defaults": True},
        }.items():
            app.control.broadcast(command, arguments=arguments)

        runs.wait_until_published(run_id)
        assert worker.poll() is None
        assert child_of(worker).pid == child

    log = runs.fleet.log("w1").read_text()
    assert [line for line in log.splitlines() if "Traceback" in line or "hostname" in line] == []
    assert all(answers.values())
    assert {
        command for command, (answer, *_) in answers.items() if "error" not in (next(iter(answer.values())) or ())
    } == {
        *("ping", "stats", "active", "active_queues", "reserved", "scheduled", "registered", "revoked", "conf"),
        *("enable_events", "heartbeat"),
    }
