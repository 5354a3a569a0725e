"""Redis loses power, and its disk lacks the last writes or is as old as its last copy. `make power-loss` runs many trials."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from chaos.power import Disk, newest_log
from chaos.power_loss import power_losses
from support.redis_servers import RedisServer, redis_server
from support.waiting import wait_until

TRIALS, SEED = 5, 3
COMMANDS = 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket), decode_responses=True) as client:
        yield client


@pytest.mark.faults
def test_runs_in_which_redis_loses_power_are_published_whole(tmp_path: Path) -> None:
    trials = power_losses(tmp_path, seed=SEED, count=TRIALS, arenas=1)

    assert [trial for trial in trials if trial.broken] == []
    assert len(trials) == TRIALS
    assert any("cut" in trial.loss for trial in trials)
    assert any("copy" in trial.loss for trial in trials)


@pytest.mark.parametrize("cut", [1, 40, 1_000_000], ids=["a-byte", "a-command", "all"])
def test_redis_starts_after_its_log_was_cut_inside_a_transaction_and_has_none_of_it(
    cut: int, server: RedisServer, client: redis.Redis
) -> None:
    client.set("before", 1)
    whole = newest_log(server.data).stat().st_size
    with client.pipeline(transaction=True) as transaction:
        for number in range(COMMANDS):
            transaction.rpush("list", number)
        transaction.execute()
    wait_until(lambda: newest_log(server.data).stat().st_size > whole, description="the log has it")

    server.kill()
    log = newest_log(server.data)
    with log.open("r+b") as file:
        file.truncate(max(0, log.stat().st_size - cut))
    server.start()

    assert client.llen("list") == 0
    assert client.get("before") == (None if cut > whole else "1")


def test_a_failure_removes_the_latest_writes_and_nothing_else(
    server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    disk = Disk(server, tmp_path / "copies")
    losses = []

    for seed in range(6):
        client.delete("list")
        disk.tick()
        for number in range(COMMANDS):
            client.rpush("list", number)
        loss = disk.fail(random.Random(seed), began_at=0)
        server.start()
        left = [int(number) for number in client.lrange("list", 0, -1)]
        assert left == list(range(len(left)))
        losses.append((loss, COMMANDS - len(left)))

    assert all(missing > 0 for loss, missing in losses)
    assert any(loss.copy_age_seconds for loss, _ in losses)
    assert any(loss.cut_bytes for loss, _ in losses)
