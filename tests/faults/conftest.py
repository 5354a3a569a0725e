"""A fleet of real processes on a real Redis, with faults on request, and a run cut into many small windows."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import SHARD_ROWS, SHARDS, DisturbedRuns
from support.fleet import Fleet, new_fleet
from support.injected_faults import InjectedFaults
from support.outputs import data_digests
from support.redis_servers import RedisServer, redis_server
from support.small_fleet import enqueue_and_wait


@pytest.fixture(scope="session")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "shards"
    write_shards(folder, shards=SHARDS, rows=SHARD_ROWS, seed=4)
    return folder


@pytest.fixture(scope="session")
def runs_of(
    small_shards: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., DisturbedRuns]:
    """Make runs over the small shards, which are compared with runs without faults and without processes."""

    @cache
    def undisturbed(window_rows: int, target_file_size: str | None) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("undisturbed")
        options = {"window_rows": window_rows, "target_file_size": target_file_size}
        with new_fleet(folder) as fleet:
            runs = runs_of(fleet, InjectedFaults(folder / "faults"), folder / "out", **options)
            enqueue_and_wait(fleet.redis_url, runs.plan(), folder)
        return data_digests(runs.output)

    def runs_of(fleet: Fleet, faults: InjectedFaults, output: Path, **options: Any) -> DisturbedRuns:
        return DisturbedRuns(fleet, faults, small_shards, tiny_model, output, undisturbed, **options)

    return runs_of


@pytest.fixture
def runs(fleet: Fleet, faults: InjectedFaults, runs_of: Callable[..., DisturbedRuns], tmp_path: Path) -> DisturbedRuns:
    return runs_of(fleet, faults, tmp_path / "out")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may kill, freeze or empty."""
    with redis_server(tmp_path / "own-redis") as server:
        yield server
