"""A fleet of real processes on a real Redis, with faults on request, and a run cut into many small windows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.fleet.run import spec
from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import SHARD_ROWS, SHARDS, WINDOW_ROWS, DisturbedRuns
from support.fleet import Fleet, new_fleet
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
    return _undisturbed(small_shards, tiny_model, tmp_path_factory.mktemp("undisturbed"), window_rows=WINDOW_ROWS)


@pytest.fixture(scope="session")
def undisturbed_by_command(
    small_shards: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The same of a run that `producer enqueue` planned, whose scores files say of which larger windows they are."""
    return _undisturbed(small_shards, tiny_model, tmp_path_factory.mktemp("by-command"), window_rows=spec.WINDOW_ROWS)


def _undisturbed(shards: Path, model: Path, folder: Path, *, window_rows: int) -> dict[str, str]:
    faults = InjectedFaults(folder / "faults")
    with new_fleet(folder) as fleet:
        return DisturbedRuns(fleet, faults, shards, model, folder / "out", window_rows=window_rows).undisturbed()


@pytest.fixture
def runs(fleet: Fleet, faults: InjectedFaults, small_shards: Path, tiny_model: Path, tmp_path: Path) -> DisturbedRuns:
    return DisturbedRuns(fleet, faults, small_shards, tiny_model, tmp_path / "out")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may kill, freeze or empty."""
    with redis_server(tmp_path / "own-redis") as server:
        yield server
