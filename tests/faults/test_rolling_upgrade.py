"""A fleet of two versions works on one run while it is upgraded, in both orders: nothing is lost or duplicated."""

import io
import subprocess
import tarfile
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fleet.processes import Child
from support.disturbed_runs import ALL_ROWS, WINDOW_ROWS, DisturbedRuns
from support.injected_faults import ROOT, STAND_IN, InjectedFaults
from support.processes import run_command, started
from support.waiting import wait_until

EARLIER = "d33148e523e9"  # the first commit with today's run ids

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def earlier_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the earlier version."""
    archived = subprocess.run(["git", "-C", ROOT, "archive", EARLIER], capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"the commit {EARLIER} is not in this checkout's history")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Earlier:
    """Processes of the earlier version, in the fleet of `runs`."""

    def __init__(self, tree: Path, runs: DisturbedRuns) -> None:
        self._runs = runs
        self._environment = {
            **runs.fleet.environment,
            **runs.environment,
            "PYTHONPATH": f"{tree / 'tests/inject'}:{tree}",
        }

    def enqueue(self) -> str:
        """Enqueue the run that `runs.enqueue` would."""
        done = run_command(
            *("producer", "enqueue", "--input", self._runs.shards, "--model", self._runs.model, "--scorer", STAND_IN),
            *("--dtype", "float32", "--output", self._runs.output, "--publish-paths"),
            environment=self._environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def worker(self) -> AbstractContextManager[Child]:
        command = ("worker", "start", "--name", "earlier", "--model", self._runs.model, "--threads", "1")
        return started(*command, environment=self._environment, log=self._runs.fleet.log("earlier"))

    def finalizer(self) -> AbstractContextManager[Child]:
        return started("producer", "finalizer", environment=self._environment, log=self._runs.fleet.log("earlier-f"))


@pytest.fixture
def earlier(earlier_tree: Path, runs: DisturbedRuns, faults: InjectedFaults) -> Earlier:
    faults.window_rows = WINDOW_ROWS
    faults.use_stand_in(rows_a_batch=2, seconds_a_batch=0.1)
    return Earlier(earlier_tree, runs)


def test_workers_are_upgraded_after_the_producer(
    earlier: Earlier, runs: DisturbedRuns, undisturbed: dict[str, str]
) -> None:
    run_id = runs.enqueue()

    with runs.finalizer(), earlier.worker() as old:
        runs.wait_for_rows(run_id, ALL_ROWS // 4)
        with runs.worker("new"):
            runs.wait_for_rows(run_id, ALL_ROWS // 2)
            old.terminate()
            old.wait(timeout=20)
            runs.wait_until_published(run_id, seconds=120)

    runs.check_nothing_lost_nothing_twice(run_id, undisturbed)
    assert workers_of(runs) == {"earlier", "new"}


def test_workers_are_upgraded_before_the_producer(
    earlier: Earlier, runs: DisturbedRuns, undisturbed: dict[str, str]
) -> None:
    run_id = earlier.enqueue()
    assert runs.enqueue() == run_id  # today's version calls the same run by the same id

    with earlier.finalizer() as old_finalizer, earlier.worker() as old:
        runs.wait_for_rows(run_id, ALL_ROWS // 4)
        with runs.worker("new"):
            runs.wait_for_rows(run_id, ALL_ROWS // 2)
            old.kill()  # its child ends with it; its shard is taken over when the lease expires
            wait_until(lambda: runs.fleet.ledger.counts(run_id).done >= 3, description="half of the shards are done")
            old_finalizer.terminate()
            old_finalizer.wait(timeout=60)
            with runs.finalizer():
                runs.wait_until_published(run_id, seconds=120)

    runs.check_nothing_lost_nothing_twice(run_id, undisturbed)


def workers_of(runs: DisturbedRuns) -> set[str]:
    return {str(line["worker"]).partition("@")[0] for line in runs.manifest()}
