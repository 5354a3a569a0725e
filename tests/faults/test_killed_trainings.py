"""A training that is killed, stopped, paused or cancelled goes on after its last checkpoint, and ends as if undisturbed."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fleet.ledger.keys import Keys
from fleet.processes import Child
from fleet.training.model import TrainedModel
from fleet.training.task import WHOLE
from support.disturbed_runs import child_of
from support.fleet import Fleet
from support.fleet_trainings import TRAIN, FleetTrainings, check_went_on, measured, train_undisturbed, write_made
from support.injected_faults import InjectedFaults
from support.leftovers import processes_with
from support.metadata_services import serving
from support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]  # workers start slowly on a busy machine
ROWS, EPOCHS = 120, 12  # 144 steps
SECONDS = 10  # in which a worker ends that is told to


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data and the base model."""
    return write_made(tmp_path_factory.mktemp("trained"), rows=ROWS)


@pytest.fixture(scope="module")
def undisturbed(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return train_undisturbed(tmp_path_factory.mktemp("undisturbed"), made, epochs=EPOCHS)


@pytest.fixture
def trainings(
    fleet: Fleet, faults: InjectedFaults, made: tuple[Path, Path], tmp_path: Path
) -> Iterator[FleetTrainings]:
    fleet.environment |= faults.environment | {
        "SHARDSIFT_SCORER": ""
    }  # the orders mark the processes; no scorer is needed
    yield FleetTrainings(fleet, *made, tmp_path / "model", epochs=EPOCHS)
    wait_until(lambda: not processes_with(faults), description="no process is left", seconds=30)


def test_a_killed_child_is_replaced_and_loses_at_most_an_interval(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as worker:
        reached = trainings.wait_for_checkpoint(least=8)
        child_of(worker).kill()
        model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)


def test_a_killed_parent_leaves_no_child_and_another_worker_goes_on(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as worker, trainings.fleet.finalizer():
        reached = trainings.wait_for_checkpoint(least=8)
        child = child_of(worker)
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(child), description="the child is gone")
        with trainings.worker("w2"):
            model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)


def test_a_stopped_worker_saves_a_checkpoint_and_gives_the_training_back_in_time(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as worker:
        reached = trainings.wait_for_checkpoint(least=8)
        worker.terminate()
        worker.wait(timeout=SECONDS)
    assert not trainings.status(training_id).running
    saved = max(trainings.checkpoints())
    with trainings.worker("w2"):
        model = trainings.wait_until_done(training_id)

    assert saved >= reached
    assert model.progress.resumed_from == saved
    assert measured(model) == measured(undisturbed)


def test_a_worker_whose_spot_machine_is_reclaimed_saves_a_checkpoint_and_takes_nothing_more(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with serving("aws") as cloud:
        watching = {"SHARDSIFT_SPOT_NOTICE": "aws", "SHARDSIFT_SPOT_NOTICE_ADDRESS": cloud.address}
        with trainings.worker("spot", **watching) as reclaimed:
            reached = trainings.wait_for_checkpoint(least=8)
            cloud.give_notice(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120)))
            log = trainings.fleet.log("spot")
            wait_until(lambda: "takes no more shards" in log.read_text(), description="it waits", seconds=2 * SECONDS)
            assert not trainings.status(training_id).running
            saved = max(trainings.checkpoints())
            with trainings.worker("w2"):
                model = trainings.wait_until_done(training_id)
            assert reclaimed.poll() is None

    assert saved >= reached
    assert model.progress.resumed_from == saved
    assert measured(model) == measured(undisturbed)


def test_a_killed_supervisor_leaves_no_process_and_the_training_goes_on(
    trainings: FleetTrainings, undisturbed: TrainedModel, faults: InjectedFaults
) -> None:
    training_id = trainings.enqueue()
    with trainings.fleet.machine("--train", "--gpus", "0", environment=TRAIN) as machine:
        reached = trainings.wait_for_checkpoint(least=8)
        os.kill(machine.pid, signal.SIGKILL)
        wait_until(lambda: not processes_with(faults), description="no process is left", seconds=2 * SECONDS)
    with trainings.worker("w2"):
        model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)


@pytest.mark.parametrize(("end", "again"), [("pause", "resume"), ("cancel", "retry")])
def test_a_paused_or_cancelled_training_is_given_back_with_a_checkpoint_and_goes_on(
    end: str, again: str, trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker():
        trainings.wait_for_checkpoint(least=8)
        assert trainings.fleet.call_producer(end, training_id).returncode == 0
        wait_until(lambda: not trainings.status(training_id).running, description="it is given back", seconds=30)
        saved = max(trainings.checkpoints())
        screen = trainings.fleet.call_producer("status", training_id).stdout
        assert trainings.fleet.call_producer(again, training_id).returncode == 0
        model = trainings.wait_until_done(training_id)

    told = {"pause": "paused", "cancel": "cancelled"}[end]
    assert screen.startswith(f"{told} after step {saved} of {model.progress.planned_steps}")
    assert f".checkpoints, up to step {saved}\n" in screen
    assert model.progress.resumed_from == saved
    assert measured(model) == measured(undisturbed)


def test_a_frozen_worker_whose_lease_ended_publishes_nothing(
    trainings: FleetTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker() as late, trainings.fleet.finalizer():
        trainings.wait_for_checkpoint(least=8)
        frozen = suspended(late)
        with trainings.worker("w2"):
            model = trainings.wait_until_done(training_id)
            written = (trainings.output / "model.safetensors").stat().st_mtime_ns
            for process in frozen:
                process.resume()
            wait_until(
                lambda: "no longer held by this worker" in trainings.fleet.log("w1").read_text(),
                description="the late worker notices",
            )

    assert (trainings.output / "model.safetensors").stat().st_mtime_ns == written
    assert measured(model) == measured(undisturbed)


def test_a_training_that_gets_further_between_its_crashes_is_done_after_more_than_three(
    trainings: FleetTrainings,
) -> None:
    trainings = replace(trainings, epochs=40)  # 480 steps
    training_id = trainings.enqueue()
    with trainings.worker() as worker:
        for _ in range(5):
            before = noted_checkpoint(trainings, training_id)
            wait_until(
                lambda before=before: noted_checkpoint(trainings, training_id) > before,
                description="a newer checkpoint",
                seconds=120,
            )
            child_of(worker).kill()
        model = trainings.wait_until_done(training_id)

    assert model.progress.step == 480


def test_a_training_that_crashes_three_times_without_a_newer_checkpoint_is_failed(
    trainings: FleetTrainings, faults: InjectedFaults
) -> None:
    faults.at("worker.training.full:_run_steps", "before", "kill", times=9)
    trainings.fleet.environment |= faults.environment | {"SHARDSIFT_SCORER": ""}
    training_id = trainings.enqueue()
    with trainings.worker():
        wait_until(lambda: trainings.status(training_id).is_over, description="it is failed", seconds=200)

    status = trainings.status(training_id)
    assert status.word == "failed"
    assert status.failure
    assert (status.failure.crashes, faults.fired()) == (3, 3)


def test_a_worker_that_freezes_before_it_begins_takes_no_checkpoint_from_the_one_that_goes_on(
    trainings: FleetTrainings, undisturbed: TrainedModel, faults: InjectedFaults
) -> None:
    faults.at("worker.service.training_work:TrainingWork._published", "before", "freeze worker")
    trainings.fleet.environment |= faults.environment | {"SHARDSIFT_SCORER": ""}
    training_id = trainings.enqueue()
    with trainings.worker() as late, trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="it is frozen", seconds=120)
        processes = [child_of(late), psutil.Process(late.pid)]
        with trainings.worker("w2"):
            trainings.wait_for_checkpoint(least=8)
            before = checkpoint_folders(trainings)
            for process in processes:
                process.resume()
            wait_until(
                lambda: "no longer held by this worker" in trainings.fleet.log("w1").read_text(),
                description="the late worker notices",
                seconds=60,
            )
            after = checkpoint_folders(trainings)
            model = trainings.wait_until_done(training_id)

    assert after in (before, [])  # or it is done
    assert measured(model) == measured(undisturbed)


def test_a_failed_gpu_gets_a_new_process_and_the_training_goes_on(
    trainings: FleetTrainings, undisturbed: TrainedModel, faults: InjectedFaults
) -> None:
    faults.at("worker.training.watcher:Watched.on_step_end", "after", "CUDA error")
    trainings.fleet.environment |= faults.environment | {"SHARDSIFT_SCORER": ""}
    training_id = trainings.enqueue()
    with trainings.worker() as worker, trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="the GPU fails", seconds=120)
        model = trainings.wait_until_done(training_id)
        assert worker.poll() is None

    assert "The device failed. A new process replaces this one." in trainings.fleet.log("w1").read_text()
    assert measured(model) == measured(undisturbed)


def checkpoint_folders(trainings: FleetTrainings) -> list[Path]:
    return sorted(Path(f"{trainings.output}.checkpoints").glob("attempt-*"))


def noted_checkpoint(trainings: FleetTrainings, training_id: str) -> int:
    """As the ledger has it, from all attempts."""
    key = Keys(training_id, "training").attempts(WHOLE)
    return int(trainings.ledger.redis.hget(key, "checkpoint") or 0)


def suspended(worker: Child) -> list[psutil.Process]:
    """The worker and its child, frozen as a machine is that swaps or lost its network."""
    processes = [child_of(worker), psutil.Process(worker.pid)]
    for process in processes:
        process.suspend()
    return processes


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
