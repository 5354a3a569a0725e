"""Two processes that share the steps of a training train as one does, and either goes on after the other.

They are on the CPU and speak gloo. Dropout is off, because it draws other random numbers for other batches.
"""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fleet.errors import UsageError
from fleet.training.spec import FullTraining, TrainSpec
from support.labelled import write_topics
from support.models import without_dropout
from support.waiting import wait_until
from worker.training.place import Devices, TrainPlace
from worker.training.report import TrainReport
from worker.training.stopped import TrainingStopped
from worker.training.train import train

ONE = TrainPlace(device="cpu")
TWO = TrainPlace(device="cpu", devices=Devices(count=2))
ROWS = 127  # of which 102 are learned from: 13 steps an epoch, the last one of 6 rows
STEPS = 26
FULL = FullTraining(epochs=2, batch_rows=8, learning_rate=1e-3, checkpoint_steps=4)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def base(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_dropout(tiny_model, tmp_path_factory.mktemp("base") / "still")


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    folder = tmp_path_factory.mktemp("whole")
    return TrainSpec(
        data_uri=str(write_topics(folder / "topics.parquet", rows=ROWS)),
        label_column="topic",
        base_model=str(base),
        output_uri=str(folder / "model"),
        dtype="float32",
        full=FULL,
    )


@pytest.fixture(scope="module")
def alone(whole: TrainSpec) -> TrainReport:
    """What one process gives."""
    return trained(whole, ONE)


@pytest.fixture
def spec(whole: TrainSpec, tmp_path: Path) -> TrainSpec:
    return dataclasses.replace(whole, output_uri=str(tmp_path / "model"))


def trained(spec: TrainSpec, place: TrainPlace, tell: Callable[[str], None] = lambda line: None) -> TrainReport:
    report = train(spec, place, tell)
    assert report is not None
    return report


def losses(report: TrainReport, name: str) -> list[float]:
    assert report.steps is not None
    return [entry[name] for entry in report.steps.losses if name in entry]


def assert_trained_alike(report: TrainReport, other: TrainReport) -> None:
    assert report.steps is not None
    assert other.steps is not None
    assert (report.steps.done, report.steps.planned) == (other.steps.done, other.steps.planned)
    for name in ("loss", "eval_loss"):
        assert losses(report, name) == pytest.approx(losses(other, name), rel=1e-4)
    figures, others = (dataclasses.asdict(one.held_out.macro) for one in (report, other))
    assert figures == pytest.approx(others)


def ranks_of_this_process() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "worker.scoring.sharded.rank" in child.cmdline()]


def at_step(step: int, do: Callable[[], object]) -> Callable[[str], None]:
    """Do this when a step is logged."""

    def tell(line: str) -> None:
        if line.startswith(f"step {step} of {STEPS}: loss"):
            do()

    return tell


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(spec: TrainSpec, alone: TrainReport) -> None:
    told: list[str] = []

    report = trained(spec, TWO, told.append)

    assert_trained_alike(report, alone)
    assert report.device == f"2 × {alone.device}"
    assert "Training in 2 processes, each with 4 of the 8 rows of a step" in told
    assert [file.name for file in Path(spec.output_uri).parent.iterdir()] == ["model"]
    assert not ranks_of_this_process()
    assert "WORLD_SIZE" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(("label_column", "weights"), [("label", "none"), ("topic", "balanced")])
def test_they_do_so_with_gradient_accumulation_whatever_is_learned(
    label_column: str, weights: str, spec: TrainSpec, tmp_path: Path
) -> None:
    full = dataclasses.replace(FULL, batch_rows=4, accumulation_steps=3)  # 6 rows in each of two processes
    spec = dataclasses.replace(spec, label_column=label_column, class_weights=weights, full=full)

    alone = trained(dataclasses.replace(spec, output_uri=str(tmp_path / "alone")), ONE)

    assert_trained_alike(trained(spec, TWO), alone)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(TWO, ONE), (ONE, TWO), (TWO, TWO)])
def test_a_checkpoint_of_some_processes_is_gone_on_from_by_others(
    first: TrainPlace, then: TrainPlace, spec: TrainSpec, alone: TrainReport
) -> None:
    with pytest.raises(TrainingStopped, match="Stopped after step 17"):
        trained(spec, first, at_step(16, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert not ranks_of_this_process()

    report = trained(spec, then)

    assert report.steps is not None
    assert report.steps.resumed_from == 17  # in the middle of the second epoch
    assert_trained_alike(report, alone)


@pytest.mark.slow
def test_a_process_that_dies_fails_the_training_which_goes_on_after_its_last_checkpoint(
    spec: TrainSpec, alone: TrainReport
) -> None:
    reasons: list[str] = []
    watched = dataclasses.replace(TWO, devices=Devices(count=2, on_lost_rank=reasons.append))

    with pytest.raises(RuntimeError):
        trained(spec, watched, at_step(13, lambda: ranks_of_this_process()[0].kill()))
    wait_until(lambda: bool(reasons), description="the death is told")
    assert "Rank 1 of 2" in reasons[0]
    assert not ranks_of_this_process()
    report = trained(spec, TWO)

    assert report.steps is not None
    assert report.steps.resumed_from == 12
    assert_trained_alike(report, alone)


@pytest.mark.slow
def test_a_mistake_of_the_user_is_one_error_and_not_the_loss_of_a_process(spec: TrainSpec) -> None:
    reasons: list[str] = []
    watched = dataclasses.replace(TWO, devices=Devices(count=2, on_lost_rank=reasons.append))

    with pytest.raises(UsageError, match="float16 needs a GPU"):
        trained(dataclasses.replace(spec, dtype="float16"), watched)

    assert not reasons
    assert not ranks_of_this_process()


def test_a_step_that_cannot_be_divided_is_taken_by_one_process(spec: TrainSpec) -> None:
    told: list[str] = []
    full = dataclasses.replace(FULL, batch_rows=7, epochs=0.5)

    report = trained(dataclasses.replace(spec, full=full), TWO, told.append)

    assert told[0] == "A step of 7 rows cannot be divided among 2 devices. Training on one of them"
    assert not report.device.startswith("2 ×")


def test_a_frozen_encoder_is_computed_on_one_device_and_that_is_said(spec: TrainSpec) -> None:
    told: list[str] = []

    trained(dataclasses.replace(spec, full=None), TWO, told.append)

    assert told[0] == "An encoder that is frozen runs on one of 2 devices"
