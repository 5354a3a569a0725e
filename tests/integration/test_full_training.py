"""All weights of a model are trained in steps that can be interrupted anywhere."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import shardsift
from shardsift.fleet.errors import Stopped, UsageError
from shardsift.worker.training.train import train
from shardsift.worker.training.train_options import TrainOptions
from shardsift.worker.training.train_report import TrainReport
from support.labelled import write_topics
from support.models import tiny_classifier

ROWS = 120  # of which 96 are learned from: 12 steps an epoch
STEPS = {"epochs": 2.0, "batch_rows": 8, "learning_rate": 1e-3, "checkpoint_steps": 4}

pytestmark = pytest.mark.usefixtures("one_thread", "pictures")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_classifier(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("data") / "topics.parquet", rows=ROWS)


def options_of(base: Path, data: Path, output: Path) -> TrainOptions:
    return TrainOptions(
        data=str(data),
        label_column="topic",
        base_model=str(base),
        output=str(output),
        dtype="float32",
        full=True,
        **STEPS,
    )


@pytest.fixture
def spec(base: Path, data: Path, tmp_path: Path) -> TrainOptions:
    return options_of(base, data, tmp_path / "model")


@pytest.fixture(scope="module")
def undisturbed(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    return trained(options_of(base, data, tmp_path_factory.mktemp("undisturbed") / "model"))


def trained(spec: TrainOptions, say: Callable[[str], None] = lambda line: None) -> TrainReport:
    return train(spec, device="cpu", say=say)


def stop_at(step: int) -> Callable[[str], None]:
    """SIGTERM to this process as soon as a step is logged."""

    def tell(line: str) -> None:
        if line.startswith(f"step {step} of 24: loss"):
            os.kill(os.getpid(), signal.SIGTERM)

    return tell


def losses(report: TrainReport, name: str = "loss") -> list[float]:
    return [entry[name] for entry in report.steps.losses if name in entry]


def test_training_lowers_the_loss_and_leaves_only_a_model(undisturbed: TrainReport) -> None:
    losses_held_out = losses(undisturbed, "eval_loss")

    assert losses_held_out[-1] < losses_held_out[0]
    assert (undisturbed.steps.done, undisturbed.steps.planned, undisturbed.steps.resumed_from) == (24, 24, None)
    assert [file.name for file in Path(undisturbed.options.output).parent.iterdir()] == ["model"]


def test_a_stopped_training_goes_on_and_ends_as_if_undisturbed(spec: TrainOptions, undisturbed: TrainReport) -> None:
    with pytest.raises(Stopped, match="Stopped after step 10, .* Run the same command again"):
        trained(spec, say=stop_at(9))
    assert not Path(spec.output).exists()

    report = trained(spec)

    assert report.steps.resumed_from == 10
    assert report.held_out == undisturbed.held_out
    assert losses(report, "eval_loss") == losses(undisturbed, "eval_loss")


@pytest.mark.slow
def test_a_call_from_python_that_is_interrupted_raises_keyboard_interrupt(
    spec: TrainOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardsift.worker.api.train.say", stop_at(9))

    with pytest.raises(KeyboardInterrupt, match="Stopped after step 10"):
        shardsift.train(device="cpu", **vars(spec))


@pytest.mark.slow
def test_a_checkpoint_that_was_not_written_to_its_end_is_not_used(spec: TrainOptions, undisturbed: TrainReport) -> None:
    """So a killed process loses at most one interval."""
    spec = dataclasses.replace(spec, checkpoints=f"{spec.output}.elsewhere")
    with pytest.raises(Stopped):
        trained(spec, say=stop_at(9))
    state = Path(f"{spec.output}.elsewhere/checkpoint-10/trainer_state.json")
    state.write_text(state.read_text()[:100])

    report = trained(spec)

    assert report.steps.resumed_from == 8
    assert report.held_out == undisturbed.held_out


def test_checkpoints_of_another_training_are_one_clear_error(spec: TrainOptions, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained(spec, say=stop_at(4))
    faster = dataclasses.replace(spec, learning_rate=0.01)

    with pytest.raises(UsageError, match="another learning rate.* delete this one to start again"):
        trained(faster)

    write_topics(tmp_path / "other.parquet", rows=ROWS, seed=1)
    with pytest.raises(UsageError, match="of another training, with another data"):
        trained(dataclasses.replace(spec, data=str(tmp_path / "other.parquet")))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"checkpoints": str(Path(__file__).parent)}, "holds other files. Name another folder with --checkpoints"),
        ({"dtype": "float16"}, "--dtype float16 needs a GPU to train on"),
    ],
)
def test_a_training_that_cannot_begin_is_a_clear_error(spec: TrainOptions, options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        trained(dataclasses.replace(spec, **options))


@pytest.mark.slow
def test_of_two_processes_only_the_first_writes(spec: TrainOptions, tmp_path: Path) -> None:
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]

    done = subprocess.run(
        [*two, "shardsift", *spec.command[1:], "--device", "cpu", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["steps"]["done"] == 12  # each step takes 16 rows
    assert report["held_out"]["rows"] == 24
    assert [file.name for file in Path(spec.output).parent.iterdir()] == ["model"]


def test_a_training_that_diverges_says_so_and_publishes_nothing(spec: TrainOptions) -> None:
    wild = dataclasses.replace(spec, learning_rate=1e38)

    with pytest.raises(UsageError, match=r"The training has diverged.* Lower --learning-rate, which is 1e\+38"):
        trained(wild)

    assert not Path(spec.output).exists()
    assert not spec.checkpoint_folder.exists()
