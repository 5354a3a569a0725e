"""A fleet of real processes on a real Redis, with faults on request, and a run cut into many small windows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.demo.shards import write_shards
from support.disturbed_runs import SHARD_ROWS, SHARDS, DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.redis_servers import RedisServer, redis_server


@pytest.fixture(scope="session")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "shards"
    write_shards(folder, shards=SHARDS, rows=SHARD_ROWS, seed=4)
    return folder


@pytest.fixture(scope="session")
def undisturbed(small_shards: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that a run without faults publishes: path → sha256."""
    from support.fleet import new_fleet

    folder = tmp_path_factory.mktemp("undisturbed")
    faults = InjectedFaults(folder / "faults")
    faults.use_stand_in(seconds_a_batch=0)
    with new_fleet(folder) as fleet:
        return DisturbedRuns(fleet, faults, small_shards, tiny_model, folder / "out").undisturbed()


@pytest.fixture
def runs(fleet: Fleet, faults: InjectedFaults, small_shards: Path, tiny_model: Path, tmp_path: Path) -> DisturbedRuns:
    return DisturbedRuns(fleet, faults, small_shards, tiny_model, tmp_path / "out")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may kill, freeze or empty."""
    with redis_server(tmp_path / "own-redis") as server:
        yield server
