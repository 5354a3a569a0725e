"""Each checkpoint is copied to where other machines reach it, and a machine without checkpoints goes on from there."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import fsspec
import pytest

from fleet.errors import ShardError, UsageError
from fleet.training.spec import FullTraining, TrainSpec
from support.dying_storage import dies_after
from support.labelled import write_topics
from support.models import tiny_classifier
from support.waiting import wait_until
from worker.training.checkpoint_copies import CheckpointCopies
from worker.training.place import TrainPlace
from worker.training.report import TrainReport
from worker.training.stopped import TrainingStopped
from worker.training.train import train

FULL = FullTraining(epochs=2, batch_rows=8, learning_rate=1e-3, checkpoint_steps=4)  # 24 steps
CPU = TrainPlace(device="cpu")
DESCRIPTION = {"seed": 0}
_numbers = count()

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_classifier(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("data") / "topics.parquet", rows=120)


@pytest.fixture
def bucket() -> Iterator[str]:
    uri = f"memory://checkpoints-{next(_numbers)}/of-one"
    yield uri
    files = fsspec.filesystem("memory")
    if files.exists(uri):
        files.rm(uri, recursive=True)


@pytest.fixture
def spec(base: Path, data: Path, tmp_path: Path) -> TrainSpec:
    return TrainSpec(
        data_uri=str(data),
        label_column="topic",
        base_model=str(base),
        output_uri=str(tmp_path / "one-machine" / "model"),
        dtype="float32",
        full=FULL,
    )


@pytest.fixture(scope="module")
def undisturbed(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    folder = tmp_path_factory.mktemp("undisturbed")
    spec = TrainSpec(
        data_uri=str(data),
        label_column="topic",
        base_model=str(base),
        output_uri=str(folder / "model"),
        dtype="float32",
        full=FULL,
    )
    return trained(spec, CPU)


def trained(spec: TrainSpec, place: TrainPlace, tell: Callable[[str], None] = lambda line: None) -> TrainReport:
    report = train(spec, place, tell)
    assert report is not None
    return report


def at_step(step: int, do: Callable[[], None]) -> Callable[[str], None]:
    """Do something when the loss of a step is logged."""

    def tell(line: str) -> None:
        if line.startswith(f"step {step} of 24: loss"):
            do()

    return tell


def stopping(step: int) -> Callable[[str], None]:
    return at_step(step, lambda: os.kill(os.getpid(), signal.SIGTERM))


def names_in(uri: str) -> set[str]:
    files = fsspec.filesystem("memory")
    return {Path(path).name for path in files.ls(uri, detail=False)} if files.exists(uri) else set()


def on_another_machine(spec: TrainSpec) -> TrainSpec:
    """The first machine has vanished with its disk; the base model is elsewhere on this one."""
    shutil.rmtree(Path(spec.output_uri).parent)
    other = Path(spec.output_uri).parents[1] / "another-machine"
    base = shutil.copytree(spec.base_model, other / "models" / "base")
    return dataclasses.replace(spec, output_uri=str(other / "model"), base_model=str(base))


def test_another_machine_goes_on_from_the_copies(spec: TrainSpec, undisturbed: TrainReport, bucket: str) -> None:
    place = CPU.with_checkpoints(bucket)
    with pytest.raises(TrainingStopped, match=f"Stopped after step 10, with a checkpoint in {bucket}"):
        trained(spec, place, stopping(9))

    report = trained(on_another_machine(spec), place)

    assert report.steps is not None
    assert report.steps.resumed_from == 10
    assert report.held_out == undisturbed.held_out
    assert names_in(bucket) == set()


def test_two_checkpoints_are_kept_there(spec: TrainSpec, bucket: str) -> None:
    place, seen = CPU.with_checkpoints(bucket), []

    trained(spec, place, at_step(22, lambda: seen.append(names_in(bucket))))

    assert seen == [{"training.json", *(f"checkpoint-{step}{end}" for step in (16, 20) for end in ("", ".json"))}]


def test_a_copy_that_was_not_made_to_its_end_is_not_used(
    spec: TrainSpec, undisturbed: TrainReport, bucket: str
) -> None:
    place = CPU.with_checkpoints(bucket)
    with pytest.raises(TrainingStopped):
        trained(spec, place, stopping(9))
    fsspec.filesystem("memory").rm(f"{bucket}/checkpoint-10.json")

    report = trained(on_another_machine(spec), place)

    assert report.steps is not None
    assert report.steps.resumed_from == 8
    assert report.held_out == undisturbed.held_out


def test_a_damaged_copy_is_not_used_and_is_made_again(spec: TrainSpec, undisturbed: TrainReport, bucket: str) -> None:
    place = CPU.with_checkpoints(bucket)
    with pytest.raises(TrainingStopped):
        trained(spec, place, stopping(9))
    fsspec.filesystem("memory").pipe_file(f"{bucket}/checkpoint-10/model.safetensors", b"damaged")

    report = trained(on_another_machine(spec), place)

    assert report.steps is not None
    assert report.steps.resumed_from == 8
    assert report.held_out == undisturbed.held_out


def test_the_newer_checkpoint_is_used_wherever_it_is(spec: TrainSpec, undisturbed: TrainReport, bucket: str) -> None:
    place = CPU.with_checkpoints(bucket)
    with pytest.raises(TrainingStopped):
        trained(spec, place, stopping(5))
    elsewhere = dataclasses.replace(spec, output_uri=f"{Path(spec.output_uri).parents[1]}/another-machine/model")
    with pytest.raises(TrainingStopped):
        trained(elsewhere, place, stopping(13))

    report = trained(spec, place)  # the first machine has step 6

    assert report.steps is not None
    assert report.steps.resumed_from == 14
    assert report.held_out == undisturbed.held_out


def test_copies_of_another_training_are_one_clear_error(spec: TrainSpec, bucket: str) -> None:
    place = CPU.with_checkpoints(bucket)
    with pytest.raises(TrainingStopped):
        trained(spec, place, stopping(4))
    other = on_another_machine(dataclasses.replace(spec, full=dataclasses.replace(FULL, learning_rate=0.01)))

    with pytest.raises(UsageError, match=f"in {bucket} are of another training: learning rate was 0.001, is 0.01"):
        trained(other, place)

    report = trained(other, dataclasses.replace(place, resume=False))
    assert report.steps is not None
    assert report.steps.resumed_from is None
    assert names_in(bucket) == set()


def test_a_place_with_other_files_is_refused(bucket: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"{bucket}/notes.txt", b"keep")

    with pytest.raises(UsageError, match="holds other files. Name another place with --checkpoints"):
        CheckpointCopies(bucket).claim(DESCRIPTION)


def test_training_goes_on_if_a_copy_fails(spec: TrainSpec, undisturbed: TrainReport, tmp_path: Path) -> None:
    copies, said = tmp_path / "mount", []

    def unmount() -> None:
        shutil.rmtree(copies)
        copies.write_text("in the way")

    def tell(line: str) -> None:
        said.append(line)
        at_step(5, unmount)(line)

    report = trained(spec, CPU.with_checkpoints(f"file://{copies}"), tell)

    assert report.held_out == undisturbed.held_out
    assert [line for line in said if line.startswith(f"Copying a checkpoint to file://{copies}: ")]
    assert [line for line in said if line.endswith("model.checkpoints only.")]


def test_a_base_model_that_has_changed_is_noticed(spec: TrainSpec, tmp_path: Path) -> None:
    base = shutil.copytree(spec.base_model, tmp_path / "mine")
    spec = dataclasses.replace(spec, base_model=str(base))
    with pytest.raises(TrainingStopped):
        trained(spec, CPU, stopping(4))
    tiny_classifier(base, seed=1)

    with pytest.raises(UsageError, match="of another training: base model was sha256-.*, is sha256-"):
        trained(spec, CPU)


@pytest.mark.parametrize(
    ("given", "folder", "uri"),
    [("mine", Path("mine"), None), ("memory://bucket/mine", None, "memory://bucket/mine"), (None, None, None)],
)
def test_checkpoints_is_a_folder_or_a_uri(given: str | None, folder: Path | None, uri: str | None) -> None:
    place = TrainPlace().with_checkpoints(given)

    assert (place.checkpoints, place.copies and place.copies.uri) == (folder, uri)


def test_checkpoints_do_not_go_to_the_hub() -> None:
    with pytest.raises(UsageError, match="go to a folder or a bucket"):
        TrainPlace().with_checkpoints("hf://me/checkpoints")


class TestStoppedAnywhere:
    """The process ends between any two changes of the bucket."""

    def test_what_can_be_fetched_is_whole(self, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here = tmp_path / "here"
        a_checkpoint(here, 4)
        CheckpointCopies(bucket).claim(DESCRIPTION)
        CheckpointCopies(bucket).push(here)
        a_checkpoint(here, 8)
        shutil.rmtree(here / "checkpoint-4")

        for changes in range(60):
            dies_after(monkeypatch, changes)
            with suppress(ShardError):
                CheckpointCopies(bucket).push(here)
            monkeypatch.undo()
            found = fetched(bucket, tmp_path / f"there-{changes}")
            assert found in ({4: "4"}, {8: "8"}, {4: "4", 8: "8"})
            if found == {8: "8"} and names_in(bucket) == {"training.json", "checkpoint-8", "checkpoint-8.json"}:
                break
        assert 5 < changes < 59


def a_checkpoint(folder: Path, step: int) -> None:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
        (checkpoint / name).write_text(str(step))


def fetched(uri: str, folder: Path) -> dict[int, str]:
    folder.mkdir()
    CheckpointCopies(uri).fetch(folder)
    found = {}
    for checkpoint in folder.iterdir():
        (content,) = {file.read_text() for file in checkpoint.iterdir()}
        assert len(list(checkpoint.iterdir())) == 3
        found[int(checkpoint.name.removeprefix("checkpoint-"))] = content
    return found


def command_of(spec: TrainSpec, copies: Path) -> list[str]:
    options = {
        "data": spec.data_uri,
        "label-column": spec.label_column,
        "base-model": spec.base_model,
        "output": spec.output_uri,
        "checkpoints": f"file://{copies}",
        "dtype": spec.dtype,
        "device": "cpu",
        "epochs": FULL.epochs,
        "batch-rows": FULL.batch_rows,
        "learning-rate": FULL.learning_rate,
        "checkpoint-steps": FULL.checkpoint_steps,
    }
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "worker", "train", "--full", "--json", *given]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_machine_that_vanishes_loses_at_most_one_interval(
    number: signal.Signals, spec: TrainSpec, undisturbed: TrainReport, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command_of(spec, tmp_path / "mount"), stdout=subprocess.DEVNULL, stderr=stderr)
    wait_until(lambda: "step 13 of 24" in log.read_text(), seconds=120, description="the step after a checkpoint")
    process.send_signal(number)
    process.wait()
    reached = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("step ")][-1]

    done = subprocess.run(
        command_of(on_another_machine(spec), tmp_path / "mount"), capture_output=True, text=True, check=True
    )

    again = json.loads(done.stdout)
    assert again["steps"]["resumed_from"] > reached - FULL.checkpoint_steps
    assert again["held_out"] == json.loads(json.dumps(undisturbed.as_json()["held_out"]))
    assert list((tmp_path / "mount").iterdir()) == []
