"""A finalizer and Flower end soon after SIGTERM while Redis is away."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleet import Fleet
from support.flower import flower_process
from support.ports import unused_port
from support.redis_servers import RedisServer, moved, redis_server
from support.waiting import wait_until

HEARTBEAT_SECONDS = 2.0
EVENTS_SECONDS = 5.0
STOP_SECONDS = 10.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "own-redis") as server:
        yield server


def test_a_finalizer_whose_heartbeat_waits_for_redis_ends_at_sigterm(fleet: Fleet, server: RedisServer) -> None:
    fleet = moved(fleet, server.url)
    with fleet.finalizer() as finalizer:
        wait_until(lambda: " ready." in fleet.log("finalizer").read_text(), description="the finalizer is ready")
        server.freeze()
        time.sleep(HEARTBEAT_SECONDS + 0.2)  # Celery sends a heartbeat, and waits for the answer
        server.kill()
        finalizer.terminate()

        assert finalizer.wait(STOP_SECONDS) == 0

    assert "Redis does not answer" in fleet.log("finalizer").read_text().splitlines()[-1]


@pytest.mark.slow
def test_flower_that_asks_workers_through_a_redis_that_is_away_ends_at_sigterm(
    fleet: Fleet, server: RedisServer
) -> None:
    fleet = moved(fleet, server.url)
    with flower_process(fleet, unused_port()) as (flower, _):
        wait_until(
            lambda: "stats failed" in fleet.log("flower").read_text(), description="Flower asked, and has a connection"
        )
        server.kill()
        time.sleep(EVENTS_SECONDS + 0.5)  # Flower asks workers for events, and waits for Redis
        flower.terminate()

        assert flower.wait(STOP_SECONDS) == 0

    assert list(Path(fleet.environment["SHARDSIFT_STATE_DIR"]).glob("flower.db*"))
