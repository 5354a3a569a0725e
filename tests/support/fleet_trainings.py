"""A training on a fleet of real processes, and the same one undisturbed in this process."""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from fleet.ledger import Ledger
from fleet.processes import Child
from fleet.training.model import MARK, TrainedModel
from fleet.training.task import FleetTraining
from fleet.training.trained import trained_model_at
from hubserver import HubServer
from producer.training.status import TrainingStatus, training_status
from support.fleet import Fleet, new_fleet
from support.labelled import write_topics
from support.models import tiny_classifier
from support.waiting import wait_until

TRAIN = {
    "SHARDSIFT_TRAIN": "1",
    "SHARDSIFT_DEVICE": "cpu",
    "SHARDSIFT_THREADS": "1",  # another number gives other last bits
    "SHARDSIFT_LEASE_SECONDS": "3",
}
CHECKPOINT_STEPS = 4


def write_made(folder: Path, *, rows: int) -> tuple[Path, Path]:
    """The data and the base model of a training."""
    return write_topics(folder / "topics.parquet", rows=rows), tiny_classifier(folder / "base")


def train_undisturbed(folder: Path, made: tuple[Path, Path], *, epochs: int, **environment: str) -> TrainedModel:
    """What a fleet of its own trains, with one worker and without faults."""
    with new_fleet(folder) as fleet:
        trainings = FleetTrainings(fleet, *made, folder / "model", epochs=epochs)
        training_id = trainings.enqueue()
        with trainings.worker(**environment):
            return trainings.wait_until_done(training_id)


@dataclass
class FleetTrainings:
    """One training of `data` into `output`, with a checkpoint every four steps of 8 rows."""

    fleet: Fleet
    data: Path | str
    base: Path
    output: Path
    epochs: int = 2
    full: bool = True

    @property
    def options(self) -> list[str]:
        """Of `producer train` and `worker train`, without the output."""
        full = ["--full", "--epochs", str(self.epochs), "--batch-rows", "8", "--learning-rate", "0.001"]
        full += ["--checkpoint-steps", str(CHECKPOINT_STEPS)]
        common = ["--data", str(self.data), "--label-column", "topic", "--base-model", str(self.base)]
        return [*common, "--dtype", "float32", *(full if self.full else [])]

    def enqueue(self) -> str:
        done = self.fleet.call_producer("train", *self.options, "--output", self.output)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def worker(self, name: str = "w1", **environment: str) -> AbstractContextManager[Child]:
        return self.fleet.worker(name=name, environment=TRAIN | environment)

    @property
    def ledger(self) -> Ledger[FleetTraining]:
        return self.fleet.ledger.trainings

    def status(self, training_id: str) -> TrainingStatus:
        return training_status(self.ledger, training_id)

    def wait_until_done(self, training_id: str) -> TrainedModel:
        wait_until(lambda: self.status(training_id).is_over, description="the training is over", seconds=200)
        status = self.status(training_id)
        assert status.word == "done", status
        return self.model()

    def model(self) -> TrainedModel:
        model = trained_model_at(str(self.output))
        assert model
        return model

    def checkpoints(self) -> list[int]:
        """The steps of the whole checkpoints that are there."""
        found = Path(f"{self.output}.checkpoints").glob("attempt-*/checkpoint-*/trainer_state.json")
        return sorted(int(file.parent.name.removeprefix("checkpoint-")) for file in found)

    def wait_for_checkpoint(self, *, least: int = CHECKPOINT_STEPS) -> int:
        """The newest checkpoint, when there is one of this step or a later one."""
        wait_until(lambda: max(self.checkpoints(), default=0) >= least, description=f"checkpoint {least}", seconds=240)
        return max(self.checkpoints())


@dataclass
class ScatteredTrainings(FleetTrainings):
    """The same, of machines without a shared folder: the model goes to a local Hub, and checkpoints are copied to `copies`.

    A URI of files stands for a bucket.
    """

    hub: HubServer = field(kw_only=True)
    copies: Path | None = None
    repo: str = "me/model"

    def enqueue(self) -> str:
        done = self.produce()
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def produce(self, *more: str) -> CompletedProcess[str]:
        """`producer train`, in a process of its own, because it uses the Hub."""
        checkpoints = ["--checkpoints", f"file://{self.copies}"] if self.copies else []
        return self.fleet.producer("train", *self.options, "--output", f"hf://{self.repo}", *checkpoints, *more)

    def machine_worker(self, name: str, **environment: str) -> AbstractContextManager[Child]:
        """A worker with a disk of its own."""
        return self.worker(name, **environment, SHARDSIFT_SCRATCH_DIR=str(self.disk(name)))

    def disk(self, name: str) -> Path:
        disk = self.fleet.folder / "disks" / name
        disk.mkdir(parents=True, exist_ok=True)
        return disk

    def status(self, training_id: str) -> TrainingStatus:
        return training_status(self.ledger, training_id, looks=False)

    def model(self) -> TrainedModel:
        return TrainedModel.from_json(self.hub.read(self.repo, MARK, repo_type="model"))

    def commits(self) -> int:
        """Those that added a model."""
        return len(self.hub.commits(self.repo, repo_type="model")) - 1

    def checkpoints(self) -> list[int]:
        """The steps of the whole copies, or of the whole checkpoints on the disks."""
        if self.copies:
            names = [file.stem for file in self.copies.glob("attempt-*/checkpoint-*.json")]
        else:
            states = (self.fleet.folder / "disks").rglob("attempt-*/checkpoint-*/trainer_state.json")
            names = [file.parent.name for file in states]
        return sorted(int(name.removeprefix("checkpoint-")) for name in names)


def check_went_on(model: TrainedModel, undisturbed: TrainedModel, *, reached: int) -> None:
    """It was resumed at the checkpoint of step `reached` or a later one, and ended with the figures of an undisturbed one."""
    assert model.progress.resumed_from is not None
    assert model.progress.resumed_from >= reached
    assert measured(model) == measured(undisturbed)


def measured(model: TrainedModel) -> dict[str, Any]:
    """What does not depend on the time: the figures of the held-out rows, and all losses."""
    progress = json.loads(model.to_json())["progress"]
    return {"figures": dict(model.figures), "step": progress["step"], "losses": progress["losses"]}
