"""A fleet of separate processes on one Redis: workers and a finalizer start, stop and die, and the run is finished.

Tests that do not depend on the model use the stand-in scorer, because torch takes seconds to load.
"""

from pathlib import Path

import pytest

from support.crawls import copy_shards
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import manifest_lines
from support.processes import started
from support.waiting import wait_until


@pytest.fixture
def fleet(fleet: Fleet, faults: InjectedFaults) -> Fleet:
    """A fleet whose workers load no model. A shard of 12 rows takes them about a second."""
    faults.use_stand_in(seconds_a_batch=0.3)
    fleet.environment |= {**faults.environment, "SHARDSIFT_DTYPE": "float32"}
    return fleet


@pytest.fixture
def job(shards: Path, tiny_model: Path, tmp_path: Path) -> list[str]:
    """The options of `enqueue`. Of two equal ones, the later counts."""
    paths = map(str, ("--input", shards, "--model", tiny_model, "--output", tmp_path / "out"))
    return [*paths, "--scorer", STAND_IN, "--dtype", "float32"]


def wait_for_first_shard(fleet: Fleet, run_id: str) -> None:
    wait_until(lambda: fleet.ledger.counts(run_id).rows_scored, description="a worker scores rows", seconds=120)


def test_a_paused_run_leaves_its_worker_to_another_run_and_is_resumed(
    fleet: Fleet, job: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    run_id = fleet.enqueue(*job, "--limit-rows", "48")

    with fleet.finalizer(), fleet.worker(tiny_model):
        wait_for_first_shard(fleet, run_id)
        paused = fleet.call_producer("pause", run_id)
        other = fleet.enqueue(*job, "--output", tmp_path / "other", "--limit-rows", "12", "--keep-all")
        fleet.wait_until_published(other, seconds=180)
        status = fleet.call_producer("status", run_id)
        again = fleet.call_producer("enqueue", *job, "--limit-rows", "48")
        assert fleet.ledger.counts(run_id).running == 0
        resumed = fleet.call_producer("resume", run_id)
        fleet.wait_until_published(run_id, seconds=180)

    assert paused.stderr == f"Run {run_id} is paused. Resume it: producer resume {run_id}\n"
    assert status.returncode == 3
    assert f"It is paused. Resume it: producer resume {run_id}\n" in status.stdout
    assert f"The run is paused. Resume it: producer resume {run_id}\n" in again.stderr
    assert resumed.stderr.startswith(f"Run {run_id} is resumed.\n")  # its worker may not have told yet that it is free
    assert {line["attempt"] for line in manifest_lines(tmp_path / "out")} == {1}


def formats(*able: str) -> dict[str, str]:
    """The environment of a worker on a device that is made for these formats, best first."""
    return {"SHARDSIFT_DTYPE": "auto", "STAND_IN_FORMATS": ",".join(able)}


@pytest.mark.slow
def test_workers_follow_the_format_of_the_first(
    fleet: Fleet, faults: InjectedFaults, job: list[str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=1)  # so that one does not do all while the other loads again
    fleet.environment |= faults.environment
    four = copy_shards(shards, tmp_path / "four", count=4)

    def times_logged(line: str) -> int:
        return sum(fleet.log(name).read_text().count(line) for name in ("w1", "w2"))

    with (
        fleet.finalizer(),
        fleet.worker(tiny_model, name="w1", environment=formats("bfloat16", "float32")),
        fleet.worker(tiny_model, name="w2", environment=formats("float32", "bfloat16")),
    ):
        wait_until(lambda: times_logged("is ready") == 2, description="both have loaded what they prefer", seconds=60)
        run_id = fleet.enqueue("--input", four, *job[2:], "--dtype", "auto")
        wait_for_first_shard(fleet, run_id)
        fleet.wait_until_published(run_id, seconds=180)

    lines = manifest_lines(tmp_path / "out")
    assert len({line["worker"] for line in lines}) == 2
    assert len({line["scorings"][0]["dtype"] for line in lines}) == 1  # type: ignore[index]
    assert times_logged("A new process replaces this one") == 1


@pytest.mark.slow
def test_plain_celery_serves_too(fleet: Fleet, job: list[str], tiny_model: Path, tmp_path: Path) -> None:
    run_id = fleet.enqueue(*job, "--limit-rows", "24")
    environment = {**fleet.environment, "SHARDSIFT_MODEL": str(tiny_model)}

    with (
        fleet.finalizer(),
        started("celery", "-A", "shardsift.worker.app", "worker", environment=environment, log=fleet.log("celery")),
    ):
        fleet.wait_until_published(run_id, seconds=180)

    assert len(manifest_lines(tmp_path / "out")) == 2
