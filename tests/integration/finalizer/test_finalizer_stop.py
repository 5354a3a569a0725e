"""A finalizer and Flower end soon after SIGTERM while Redis is away."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.fleet.presence.announcements import list_finalizers
from shardsift.fleet.process.broker import queue_length
from support.fleet import Fleet
from support.flower import flower_process
from support.ports import unused_port
from support.records import a_shard, a_spec
from support.redis_servers import RedisServer, moved, redis_server
from support.waiting import wait_until

EVENTS_SECONDS = 5.0
STOP_SECONDS = 10.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "own-redis") as server:
        yield server


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)])
def test_a_signal_ends_a_finalizer_of_a_frozen_redis(fleet: Fleet, server: RedisServer, number: signal.Signals) -> None:
    fleet = moved(fleet, server.url)
    with fleet.finalizer() as finalizer:
        wait_until(lambda: " ready." in fleet.log("finalizer").read_text(), description="the finalizer is ready")
        with server.frozen():
            finalizer.send_signal(number)

            assert finalizer.wait(STOP_SECONDS) == 0


def test_a_finalizer_goes_on_after_a_restart_of_redis(fleet: Fleet, server: RedisServer) -> None:
    fleet, spec = moved(fleet, server.url), a_spec()
    with fleet.finalizer() as finalizer:
        wait_until(lambda: " ready." in fleet.log("finalizer").read_text(), description="the finalizer is ready")
        server.kill()
        log = fleet.log("finalizer")
        wait_until(lambda: "Redis does not answer" in log.read_text(), description="a sweep fails")
        server.start()
        fleet.ledger.create_run(spec, [a_shard("crawl/a")], now=1.0)

        wait_until(lambda: queue_length(server.client, spec.queue) == 1, description="the sweep goes on", seconds=20)

        finalizer.terminate()
        assert finalizer.wait(STOP_SECONDS) == 0
    assert list_finalizers(server.client) == []


@pytest.mark.slow
def test_flower_that_asks_workers_while_redis_is_away_ends_at_sigterm(fleet: Fleet, server: RedisServer) -> None:
    fleet = moved(fleet, server.url)
    with flower_process(fleet, unused_port()) as (flower, _):
        wait_until(
            lambda: "cmdstat_publish" in server.client.info("commandstats"),
            description="Flower asked, and has a connection",
        )
        server.kill()
        time.sleep(EVENTS_SECONDS + 0.5)  # Flower asks workers for events, and waits for Redis
        flower.terminate()

        assert flower.wait(STOP_SECONDS) == 0

    assert list(Path(fleet.environment["SHARDSIFT_STATE_DIR"]).glob("flower.db*"))
