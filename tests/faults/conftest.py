"""A fleet of real processes on a real Redis, with faults on request, and a run cut into many small windows."""

from pathlib import Path

import pytest

from producer.demo.shards import write_shards
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import InjectedFaults

SHARDS, ROWS = 6, 24


@pytest.fixture(scope="session")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "shards"
    write_shards(folder, shards=SHARDS, rows=ROWS, seed=4)
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
