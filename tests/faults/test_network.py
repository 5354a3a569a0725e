"""The connection to Redis may be cut, silent or slow: a producer says so, and a worker goes on. Storms have the rest."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
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


@pytest.mark.faults
@pytest.mark.parametrize("requests", [0, 6, 12])
def test_a_producer_that_is_cut_off_says_so_in_one_line_and_finishes_when_it_is_run_again(
    requests: int, runs: DisturbedRuns, way: tuple[Proxy, str], undisturbed_by_command: dict[str, str]
) -> None:
    proxy, url = way
    options = ["--input", runs.shards, "--model", runs.model, "--output", runs.output, "--dtype", "float32"]
    options += ["--scorer", STAND_IN]
    through_proxy = replace(runs.fleet, environment={**runs.fleet.environment, "REDIS_URL": url})

    with proxy.going_away(after=requests):
        cut_off = through_proxy.producer("enqueue", *options)
    again = through_proxy.producer("enqueue", *options)
    runs.serve_until_published(again.stdout.strip())

    assert cut_off.returncode == 2
    assert len(cut_off.stderr.splitlines()) == 1
    assert "Redis" in cut_off.stderr
    assert again.returncode == 0
    runs.check_each_row_scored_once(again.stdout.strip(), undisturbed_by_command)


@pytest.mark.faults
def test_three_hundred_milliseconds_to_redis_cost_no_lease(
    runs: DisturbedRuns, way: tuple[Proxy, str], undisturbed: dict[str, str]
) -> None:
    proxy, url = way
    proxy.delay(0.15)
    run_id = runs.enqueue()

    with runs.finalizer(REDIS_URL=url), runs.worker("w1", REDIS_URL=url), runs.worker("w2", REDIS_URL=url):
        runs.wait_until_published(run_id, seconds=120)

    assert runs.attempts() == {1}
    runs.check_each_row_scored_once(run_id, undisturbed)


@pytest.mark.parametrize(
    ("trouble", "seconds"),
    [
        ("silent", 4),
        pytest.param("silent", 120, marks=pytest.mark.faults),
        pytest.param("frozen", 120, marks=pytest.mark.faults),
    ],
)
def test_a_redis_that_does_not_answer_leaves_the_device_at_work(
    runs: DisturbedRuns,
    way: tuple[Proxy, str],
    server: RedisServer,
    tmp_path: Path,
    trouble: str,
    seconds: int,
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
