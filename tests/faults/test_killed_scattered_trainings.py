"""Machines without a shared folder: a training that is killed goes on from the copies, and its model is on the Hub once."""

import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fleet.processes import Child
from fleet.training.model import TrainedModel
from hubserver import HubServer
from support.disturbed_runs import child_of
from support.fleet import Fleet
from support.fleet_trainings import ScatteredTrainings, check_went_on, measured, train_undisturbed, write_made
from support.injected_faults import InjectedFaults
from support.labelled import write_topics
from support.leftovers import processes_with
from support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]  # workers start slowly on a busy machine
ROWS, EPOCHS = 120, 12  # 144 steps
RECORD = "fleet.ledger.ledger:Ledger.complete"
COMMIT = "fleet.storage.model_output:ModelRepository._commit"
COPY_FILE = "fleet.storage.files:Files.put"
REMOVE_COPY = "worker.training.checkpoint_copies:CheckpointCopies._remove"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data and the base model."""
    return write_made(tmp_path_factory.mktemp("trained"), rows=ROWS)


@pytest.fixture(scope="module")
def undisturbed(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """Into a folder, on one machine."""
    return train_undisturbed(tmp_path_factory.mktemp("undisturbed"), made, epochs=EPOCHS)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        yield hub
    assert hub.handler_errors == []


@pytest.fixture
def trainings(
    fleet: Fleet, faults: InjectedFaults, hub: HubServer, made: tuple[Path, Path], tmp_path: Path
) -> Iterator[ScatteredTrainings]:
    client = hub.client_env(tmp_path / "home", hub.token("me"))
    fleet.environment |= {name: client[name] for name in client if name.startswith(("HF_", "NO_PROXY"))}
    fleet.environment |= {"HF_HUB_OFFLINE": "0"}
    trainings = ScatteredTrainings(fleet, *made, tmp_path, epochs=EPOCHS, hub=hub, copies=tmp_path / "bucket")
    give_orders(trainings, faults)
    yield trainings
    wait_until(lambda: not processes_with(faults), description="no process is left", seconds=30)


def give_orders(trainings: ScatteredTrainings, faults: InjectedFaults) -> None:
    """The orders mark the processes; no scorer is needed."""
    trainings.fleet.environment |= faults.environment | {"SHARDSIFT_SCORER": ""}


def test_another_machine_goes_on_from_the_copies_when_one_vanishes(
    trainings: ScatteredTrainings, undisturbed: TrainedModel
) -> None:
    training_id = trainings.enqueue()
    with trainings.machine_worker("m1") as worker, trainings.fleet.finalizer():
        reached = trainings.wait_for_checkpoint(least=8)
        vanish(worker)
        shutil.rmtree(trainings.disk("m1"))
        with trainings.machine_worker("m2"):
            model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)
    assert trainings.commits() == 1
    assert list(files_in(trainings.copies)) == []
    assert kept_on(trainings.disk("m2")) == []
    again = trainings.produce("--wait")
    assert again.returncode == 0, again.stderr
    assert "The model is at hf://me/model." in again.stdout
    assert trainings.commits() == 1


@pytest.mark.parametrize(("place", "moment"), [(COPY_FILE, "after"), (REMOVE_COPY, "before")])
def test_a_worker_that_dies_while_it_copies_leaves_nothing_half(
    place: str, moment: str, trainings: ScatteredTrainings, faults: InjectedFaults, undisturbed: TrainedModel
) -> None:
    faults.at(place, moment, "kill worker")
    give_orders(trainings, faults)
    training_id = trainings.enqueue()
    with trainings.machine_worker("m1"), trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="it is killed", seconds=120)
        with trainings.machine_worker("m2"):
            model = trainings.wait_until_done(training_id)

    assert measured(model) == measured(undisturbed)
    assert list(files_in(trainings.copies)) == []


def test_a_model_whose_worker_dies_after_the_commit_is_not_trained_again(
    trainings: ScatteredTrainings, faults: InjectedFaults, undisturbed: TrainedModel
) -> None:
    faults.at(RECORD, "before", "kill worker")
    give_orders(trainings, faults)
    training_id = trainings.enqueue()
    with trainings.machine_worker("m1"), trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="it is killed", seconds=120)
        committed = trainings.model()
        with trainings.machine_worker("m2"):
            model = trainings.wait_until_done(training_id)

    assert model == committed
    assert measured(model) == measured(undisturbed)
    assert trainings.commits() == 1
    assert list(files_in(trainings.copies)) == []


def test_a_frozen_worker_that_wakes_up_harms_no_copy_and_adds_no_commit(
    trainings: ScatteredTrainings, undisturbed: TrainedModel
) -> None:
    """The second worker dies too, after the first has come back. A third goes on from what the second has copied."""
    training_id = trainings.enqueue()
    with trainings.machine_worker("m1") as late, trainings.fleet.finalizer():
        trainings.wait_for_checkpoint(least=8)
        frozen = suspended(late)
        with trainings.machine_worker("m2") as second:
            newest = max(trainings.checkpoints())
            wait_until(
                lambda: max(trainings.checkpoints()) >= newest + 8, description="the second goes on", seconds=120
            )
            stopped = suspended(second)  # so that it does not finish meanwhile
            reached = max(trainings.checkpoints())
            for process in frozen:
                process.resume()
            wait_until(
                lambda: "no longer held by this worker" in trainings.fleet.log("m1").read_text(),
                description="the late worker notices",
                seconds=60,
            )
            for process in stopped:
                process.kill()
        late.terminate()
        with trainings.machine_worker("m3"):
            model = trainings.wait_until_done(training_id)

    check_went_on(model, undisturbed, reached=reached)
    assert trainings.commits() == 1
    assert list(files_in(trainings.copies)) == []


def test_a_worker_that_freezes_before_its_commit_adds_none_when_it_wakes_up(
    trainings: ScatteredTrainings, faults: InjectedFaults, undisturbed: TrainedModel
) -> None:
    faults.at(COMMIT, "before", "freeze worker")
    give_orders(trainings, faults)
    training_id = trainings.enqueue()
    with trainings.machine_worker("m1") as late, trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="it is frozen", seconds=120)
        processes = [child_of(late), psutil.Process(late.pid)]
        with trainings.machine_worker("m2"):
            model = trainings.wait_until_done(training_id)
            for process in processes:
                process.resume()
            wait_until(
                lambda: (
                    "no longer held by this worker" in trainings.fleet.log("m1").read_text()
                    or "was finished by another attempt" in trainings.fleet.log("m1").read_text()
                ),
                description="the late worker notices",
                seconds=60,
            )

    assert trainings.commits() == 1
    assert trainings.model() == model
    assert measured(model) == measured(undisturbed)
    wait_until(lambda: not list(files_in(trainings.copies)), description="no copy is left")


def test_without_copies_the_same_machine_goes_on_and_the_user_is_told(
    trainings: ScatteredTrainings, undisturbed: TrainedModel
) -> None:
    trainings = dataclasses.replace(trainings, copies=None)
    told = trainings.produce()
    with trainings.machine_worker("m1") as worker:
        reached = trainings.wait_for_checkpoint(least=8)
        child_of(worker).kill()
        model = trainings.wait_until_done(told.stdout.strip())

    assert "Checkpoints stay on the machine that trains. If it is lost, another one begins again." in told.stderr
    check_went_on(model, undisturbed, reached=reached)
    assert kept_on(trainings.disk("m1")) == []


def test_a_last_layer_is_learned_from_a_dataset_on_the_hub_and_goes_to_the_hub(
    trainings: ScatteredTrainings, hub: HubServer, faults: InjectedFaults, tmp_path: Path
) -> None:
    """There are no checkpoints. The worker dies before its commit, with the model written to its disk."""
    for number in (0, 1):
        write_topics(tmp_path / "labelled" / f"part-{number}.parquet", rows=ROWS // 2, seed=number)
    hub.create_repo("me/labelled")
    hub.add_folder("me/labelled", tmp_path / "labelled")
    faults.at(COMMIT, "before", "kill worker")
    give_orders(trainings, faults)
    trainings = dataclasses.replace(trainings, data="hf://datasets/me/labelled", full=False, copies=None)
    told = trainings.produce()
    with trainings.machine_worker("m1"), trainings.fleet.finalizer():
        wait_until(lambda: faults.fired() == 1, description="it is killed", seconds=120)
        with trainings.machine_worker("m1"):
            model = trainings.wait_until_done(told.stdout.strip())

    assert "Checkpoints stay" not in told.stderr
    assert model.rows == ROWS
    assert model.figures["accuracy"] > 0.5
    assert trainings.commits() == 1
    assert kept_on(trainings.disk("m1")) == []


def vanish(worker: Child) -> None:
    child = child_of(worker)
    os.kill(worker.pid, signal.SIGKILL)
    child.kill()
    wait_until(lambda: not child.is_running(), description="the child is gone")


def suspended(worker: Child) -> list[psutil.Process]:
    """The worker and its child, frozen as a machine is that swaps or lost its network."""
    processes = [child_of(worker), psutil.Process(worker.pid)]
    for process in processes:
        process.suspend()
    return processes


def files_in(folder: Path | None) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file()) if folder else iter(())


def kept_on(disk: Path) -> list[Path]:
    """Checkpoints and half-written models."""
    return [path for folder in disk.glob("shardsift-trainings-*") for path in files_in(folder)]
