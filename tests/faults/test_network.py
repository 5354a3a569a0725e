"""The connection to Redis may be cut, silent or slow: a producer says so, and a worker goes on. Storms have the rest."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.proxy import Proxy, proxied
from support.redis_servers import RedisServer, moved

ROWS_A_BATCH = 4


@pytest.fixture
def fleet(fleet: Fleet, server: RedisServer) -> Fleet:
    """The ledger, connected without the proxy."""
    return moved(fleet, server.url)


@pytest.fixture
def way(server: RedisServer) -> Iterator[tuple[Proxy, str]]:
    with proxied(server.socket) as (proxy, address):
        yield proxy, f"redis://{address}/0"


@pytest.fixture
def faults(faults: InjectedFaults) -> InjectedFaults:
    faults.use_stand_in(seconds_a_batch=0.15)
    return faults


@pytest.mark.parametrize(
    ("trouble", "seconds"),
    [
        ("silent", 4),
        pytest.param("silent", 120, marks=pytest.mark.faults),
        pytest.param("frozen", 120, marks=pytest.mark.faults),
    ],
)
def test_a_redis_that_does_not_answer_leaves_the_device_at_work(
    runs: DisturbedRuns, way: tuple[Proxy, str], server: RedisServer, tmp_path: Path, trouble: str, seconds: int
) -> None:
    proxy, url = way
    runs.shards = tmp_path / "one"
    write_shards(runs.shards, shards=1, rows=(2 * seconds + 30) * 4 * ROWS_A_BATCH, seed=4)
    runs.faults.use_stand_in(rows_a_batch=ROWS_A_BATCH, seconds_a_batch=0.25)
    run_id = runs.enqueue()

    def batches_in_that_time() -> int:
        before = runs.faults.rows_scored()
        time.sleep(seconds)
        return (runs.faults.rows_scored() - before) // ROWS_A_BATCH

    with runs.worker(REDIS_URL=url):
        runs.wait_for_rows(run_id)
        undisturbed = batches_in_that_time()
        with server.frozen() if trouble == "frozen" else proxy.silent():
            disturbed = batches_in_that_time()

    assert undisturbed > 2 * seconds
    assert disturbed >= 0.9 * undisturbed
