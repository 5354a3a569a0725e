"""A fleet of separate processes on one Redis: workers and a finalizer start, stop and die, and the run is finished.

Tests that do not depend on the model use the stand-in scorer, because torch takes seconds to load.
"""

from pathlib import Path

import pytest

from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import manifest_lines
from support.processes import started
from support.waiting import wait_until


@pytest.fixture
def quick_fleet(fleet: Fleet, faults: InjectedFaults) -> Fleet:
    """A fleet whose workers load no model. A shard of 12 rows takes them about a second."""
    faults.use_stand_in(seconds_a_batch=0.3)
    fleet.environment |= {**faults.environment, "SHARDSIFT_DTYPE": "float32"}
    return fleet


def options(shards: Path, model: Path, output: Path, *more: str) -> tuple[str | Path, ...]:
    """Of `enqueue`."""
    what = ("--input", shards, "--model", model, "--scorer", STAND_IN, "--dtype", "float32")
    return (*what, "--output", output, *more)


def wait_for_first_shard(fleet: Fleet, run_id: str) -> None:
    wait_until(lambda: fleet.ledger.counts(run_id).rows_scored, description="a worker scores rows", seconds=120)


def test_a_paused_run_leaves_its_worker_to_another_run_and_is_resumed(
    quick_fleet: Fleet, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    fleet = quick_fleet
    job = options(shards, tiny_model, tmp_path / "out", "--limit-rows", "48")
    run_id = fleet.enqueue(*job)

    with fleet.finalizer(), fleet.worker(tiny_model):
        wait_for_first_shard(fleet, run_id)
        paused = fleet.call_producer("pause", run_id)
        other = fleet.enqueue(*options(shards, tiny_model, tmp_path / "other", "--limit-rows", "12", "--keep-all"))
        fleet.wait_until_published(other, seconds=180)
        status = fleet.call_producer("status", run_id)
        again = fleet.call_producer("enqueue", *job)
        assert fleet.ledger.counts(run_id).running == 0
        resumed = fleet.call_producer("resume", run_id)
        fleet.wait_until_published(run_id, seconds=180)

    assert paused.stderr == f"Run {run_id} is paused. Resume it: producer resume {run_id}\n"
    assert status.returncode == 3
    assert f"It is paused. Resume it: producer resume {run_id}\n" in status.stdout
    assert f"The run is paused. Resume it: producer resume {run_id}\n" in again.stderr
    assert resumed.stderr == f"Run {run_id} is resumed.\n"
    assert {line["attempt"] for line in manifest_lines(tmp_path / "out")} == {1}


@pytest.mark.slow
def test_plain_celery_serves_too(quick_fleet: Fleet, shards: Path, tiny_model: Path, tmp_path: Path) -> None:
    fleet = quick_fleet
    run_id = fleet.enqueue(*options(shards, tiny_model, tmp_path / "out", "--limit-rows", "24"))
    environment = {**fleet.environment, "SHARDSIFT_MODEL": str(tiny_model)}

    with (
        fleet.finalizer(),
        started("celery", "-A", "worker.app", "worker", environment=environment, log=fleet.log("celery")),
    ):
        fleet.wait_until_published(run_id, seconds=180)

    assert len(manifest_lines(tmp_path / "out")) == 2
