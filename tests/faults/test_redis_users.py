"""The example users of ops/redis/users.acl: a worker does a run over TLS with its own user, which can do nothing else."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
import redis

from shardsift.fleet.presence.announcements import list_workers
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import ROOT
from support.proxy import proxied
from support.redis_servers import RedisServer, moved, redis_server
from support.tls import TlsFront, tls_front
from support.waiting import wait_until

USERS = ROOT / "ops/redis/users.acl"
OPERATOR, WORKER = ("shardsift", "replace-me-operator"), ("shardsift-worker", "replace-me-worker")
SCRIPTS_OF_WORKERS = ("prelude", "claim", "renew", "save_scores", "complete", "end_attempt", "take_due")

pytestmark = pytest.mark.faults


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", "--aclfile", str(USERS)) as server:
        yield server


@pytest.fixture
def front(server: RedisServer, tmp_path: Path) -> Iterator[TlsFront]:
    with tls_front(server, tmp_path) as front:
        yield front


@pytest.fixture
def fleet(fleet: Fleet, front: TlsFront) -> Fleet:
    return moved(fleet, front.url(OPERATOR))


def client_of(server: RedisServer, user: tuple[str, str]) -> redis.Redis:
    name, password = user
    return redis.Redis(unix_socket_path=str(server.socket), username=name, password=password, decode_responses=True)


@pytest.mark.parametrize(
    "lacking",
    ["-evalsha", "-hset", "-brpop", "resetkeys ~shardsift:* ~unacked* ~_kombu.binding* ~*.pidbox*", "wrong type"],
)
def test_a_worker_that_redis_refuses_says_why_and_waits(lacking: str, runs: DisturbedRuns, tmp_path: Path) -> None:
    rights = next(line.split()[1:] for line in USERS.read_text().splitlines() if WORKER[0] in line)
    with redis_server(tmp_path / "redis") as server, proxied(server.socket) as (_, address):
        runs = replace(runs, fleet=moved(runs.fleet, server.url))
        log, client = runs.fleet.log("w1"), server.client
        run_id = runs.enqueue()
        queue = runs.fleet.ledger.spec(run_id).queue
        if lacking == "wrong type":
            client.delete(queue)
            client.set(queue, "x")
        client.execute_command("ACL", "SETUSER", *rights, *lacking.split() * (lacking != "wrong type"))
        with runs.worker("w1", REDIS_URL=f"redis://{':'.join(WORKER)}@{address}/0"):
            wait_until(lambda: "Redis refuses this" in log.read_text(), description="it says so", seconds=60)
            time.sleep(3)  # in which it would connect a dozen times
            wait_until(
                lambda: [worker.activity for worker in list_workers(client)] in (["ready"], ["busy"]),
                description="it is not shown as loading",
            )
            connections = log.read_text().count("Connected to")
            client.execute_command("ACL", "SETUSER", *rights)
            if lacking == "wrong type":
                client.delete(queue)
            with runs.finalizer():
                runs.wait_until_published(run_id)
        runs.check_nothing_lost_nothing_twice(run_id)

    (said, *_) = [line for line in log.read_text().splitlines() if "Redis refuses this" in line]
    assert queue in said or lacking.removeprefix("-") in said
    assert connections < 4
    assert "Traceback" not in log.read_text()


def test_a_certificate_that_is_not_trusted_is_refused(runs: DisturbedRuns, front: TlsFront) -> None:
    untrusted = replace(runs, fleet=moved(runs.fleet, front.url(WORKER).partition("?")[0]))

    with untrusted.worker("w1") as worker:
        worker.wait(timeout=60)

    assert worker.returncode == 2
    assert "CERTIFICATE_VERIFY_FAILED" in runs.fleet.log("w1").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "another:key"),
        ("LPUSH", "another-queue", "1"),
        ("PUBLISH", "another-channel", "1"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "requirepass"),
        ("SHUTDOWN",),
        ("EVAL", "return redis.call('GET', 'another:key')", "0"),
    ],
    ids=" ".join,
)
def test_the_workers_user_cannot_reach_anything_else(server: RedisServer, command: tuple[str, ...]) -> None:
    with pytest.raises((redis.exceptions.NoPermissionError, redis.ResponseError), match="(?i)permission|ACL"):
        client_of(server, WORKER).execute_command(*command)


def test_the_workers_user_may_call_every_command_of_the_scripts_that_workers_run() -> None:
    allowed = set(re.findall(r"\+(\S+)", next(line for line in USERS.read_text().splitlines() if WORKER[0] in line)))
    scripts = resources.files("shardsift.fleet.ledger") / "lua"
    called = {
        command.lower()
        for name in SCRIPTS_OF_WORKERS
        for command in re.findall(r"redis\.p?call\('(\w+)'", (scripts / f"{name}.lua").read_text())
    }

    assert called
    assert called <= allowed


def test_the_default_user_is_off(server: RedisServer) -> None:
    with pytest.raises(redis.AuthenticationError):
        server.client.ping()
