"""A worker with two devices trains in two processes: any of them may die, and a stop ends both.

The devices are the CPU, twice, and the processes speak gloo.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fleet.processes import Child
from fleet.training.model import TrainedModel
from support.disturbed_runs import child_of
from support.fleet import Fleet
from support.fleet_trainings import FleetTrainings, check_went_on, train_undisturbed, write_made
from support.injected_faults import InjectedFaults
from support.leftovers import processes_with
from support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
TWO_DEVICES = {"SHARDSIFT_GPUS_PER_WORKER": "2"}
ROWS, EPOCHS = 123, 12  # 98 rows are learned from: 13 steps an epoch, the last one of 2 rows
SECONDS = 10  # in which a worker ends that is told to


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data and the base model."""
    return write_made(tmp_path_factory.mktemp("trained"), rows=ROWS)


@pytest.fixture(scope="module")
def undisturbed(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return train_undisturbed(tmp_path_factory.mktemp("undisturbed"), made, epochs=EPOCHS, **TWO_DEVICES)


@pytest.fixture
def trainings(
    fleet: Fleet, faults: InjectedFaults, made: tuple[Path, Path], tmp_path: Path
) -> Iterator[FleetTrainings]:
    fleet.environment |= faults.environment | {"SHARDSIFT_SCORER": ""} | TWO_DEVICES
    yield FleetTrainings(fleet, *made, tmp_path / "model", epochs=EPOCHS)
    wait_until(lambda: not processes_with(faults), description="no process is left", seconds=30)


def rank_of(worker: Child) -> psutil.Process:
    ranks = [child for child in child_of(worker).children() if "worker.scoring.sharded.rank" in child.cmdline()]
    assert len(ranks) == 1
    return ranks[0]


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def kill_rank(worker: Child) -> None:
    rank_of(worker).kill()


def hang_rank(worker: Child) -> None:
    rank_of(worker).suspend()


def kill_child(worker: Child) -> None:
    child_of(worker).kill()


@pytest.mark.parametrize("fault", [kill_rank, hang_rank, kill_child])
def test_a_lost_rank_or_child_ends_the_attempt_and_the_next_goes_on_after_the_last_checkpoint(
    fault: Callable[[Child], None], trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker(SHARDSIFT_STALL_SECONDS="20") as worker:
        reached = trainings.wait_for_checkpoint(least=8)
        group = [rank_of(worker), child_of(worker)]
        fault(worker)
        wait_until(lambda: are_gone(group), description="the group has ended", seconds=60)
        model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)


def test_a_killed_worker_leaves_no_rank_and_another_goes_on(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as worker, trainings.fleet.finalizer():
        reached = trainings.wait_for_checkpoint(least=8)
        group = psutil.Process(worker.pid).children(recursive=True)
        assert rank_of(worker) in group
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: are_gone(group), description="no process of the worker is left")
        with trainings.worker("w2"):
            model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)


def test_a_stop_ends_all_ranks_in_ten_seconds_with_a_checkpoint_that_one_device_goes_on_from(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as worker:
        reached = trainings.wait_for_checkpoint(least=8)
        group = psutil.Process(worker.pid).children(recursive=True)
        began = time.monotonic()
        worker.terminate()
        worker.wait(timeout=SECONDS)
        wait_until(lambda: are_gone(group), description="no process of the worker is left")
        assert time.monotonic() - began < SECONDS
    assert not trainings.status(training_id).running
    saved = max(trainings.checkpoints())
    with trainings.worker("w2", SHARDSIFT_GPUS_PER_WORKER="1"):
        model = trainings.wait_until_done(training_id)

    assert saved >= reached
    assert model.progress.resumed_from == saved
    assert model.progress.step == undisturbed.progress.step
