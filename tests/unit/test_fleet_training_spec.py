"""A training of the fleet has an id that follows from what is trained, and only machines that can train take it."""

import dataclasses
from pathlib import Path

import pytest
from pydantic import ValidationError

from fleet.demand import TRAINING, Load, Wanted
from fleet.model import Model
from fleet.training.progress import LossPoint, TrainProgress, thinned
from fleet.training.spec import FullTraining, TrainSpec
from fleet.training.task import FleetTraining, is_training_id
from support.records import a_spec
from worker.training.attempt_folder import drop_attempts, take_over
from worker.training.attempt_name import AttemptName

SPEC = TrainSpec(data_uri="/data/labelled.parquet", base_model="me/base", output_uri="/models/My Classifier")
FLEET = FleetTraining(spec=SPEC, checkpoints_uri="/models/checkpoints")
SCORING = Load(models=(Model(name="me/a", revision="1" * 40, labels=("LABEL_0",)),), dtype="auto")


def test_a_training_is_the_same_after_json() -> None:
    full = dataclasses.replace(FLEET, spec=dataclasses.replace(SPEC, full=FullTraining(patience=3)))

    assert FleetTraining.from_json(full.to_json()) == full


def test_its_id_names_the_output_and_changes_with_what_is_trained_only() -> None:
    assert FLEET.run_id.startswith("train-my-classifier.")
    assert is_training_id(FLEET.run_id)
    assert dataclasses.replace(FLEET, checkpoints_uri="/elsewhere", loader_processes=4).run_id == FLEET.run_id
    assert dataclasses.replace(FLEET, spec=dataclasses.replace(SPEC, seed=1)).run_id != FLEET.run_id


@pytest.mark.parametrize("name", ["train", "train-1", "train-set.parquet"])
def test_no_run_has_the_id_of_a_training(name: str) -> None:
    assert not is_training_id(a_spec(input_uris=(f"/data/{name}",)).run_id)


def test_a_training_of_a_newer_version_is_refused() -> None:
    newer = FLEET.to_json().replace(b'"seed":0', b'"seed":0,"lookahead":true')

    with pytest.raises(ValidationError, match="lookahead"):
        FleetTraining.from_json(newer)


def test_a_machine_trains_unless_it_was_started_for_models() -> None:
    anything, trainer, model = Wanted(trains=True), Wanted(scores=False, trains=True), Wanted(models=SCORING.models)

    assert [wanted.admits(TRAINING) for wanted in (anything, trainer, model)] == [True, True, False]
    assert [wanted.admits(SCORING) for wanted in (anything, trainer, model)] == [True, False, True]
    assert trainer.preload == TRAINING


def test_a_machine_of_an_earlier_version_does_not_train() -> None:
    """Its announcement has neither field."""
    assert not Wanted().admits(TRAINING)


def test_a_worker_that_trains_has_a_queue_and_a_setting_of_its_own() -> None:
    assert (TRAINING.queue, str(TRAINING)) == ("train", "trainings")
    assert TRAINING.environment == {"SHARDSIFT_TRAIN": "1"}
    assert SCORING.environment["SHARDSIFT_TRAIN"] == "0"


def test_the_last_losses_stay_when_a_curve_is_thinned() -> None:
    points = [LossPoint(step=step, loss=1.0 / step) for step in range(1, 1000)]

    few = thinned([*points, LossPoint(step=999, held_out_loss=0.5)])

    assert len(few) == 40
    assert TrainProgress(losses=few).held_out_loss == 0.5
    assert TrainProgress(losses=few).loss == 1 / 999
    assert thinned(points[:3]) == tuple(points[:3])


def attempt(token: str, *, data: str = "a", training: str = FLEET.run_id) -> AttemptName:
    return AttemptName.of(training, data_identity=data, token=token)


def test_the_name_of_an_attempt_is_read_as_it_was_written() -> None:
    assert AttemptName.read(str(attempt("12-0aff"))) == attempt("12-0aff")
    assert AttemptName.read("attempt-of-mine") is None


def test_an_attempt_takes_over_the_checkpoints_of_the_one_before(tmp_path: Path) -> None:
    first = take_over(tmp_path / "kept", attempt("1-aa"))
    (first / "checkpoint-4").mkdir(parents=True)

    second = take_over(tmp_path / "kept", attempt("2-bb"))

    assert (second / "checkpoint-4").is_dir()
    assert take_over(tmp_path / "kept", attempt("2-bb")) == second
    assert not first.exists()


def test_what_an_attempt_writes_that_lost_its_lease_is_never_taken_over(tmp_path: Path) -> None:
    first = take_over(tmp_path / "kept", attempt("1-aa"))
    first.mkdir()
    second = take_over(tmp_path / "kept", attempt("2-bb"))
    (first / "checkpoint-8").mkdir(parents=True)  # it came back

    third = take_over(tmp_path / "kept", attempt("3-cc"))

    assert not second.exists()
    assert not (third / "checkpoint-8").exists()
    assert not first.exists()


@pytest.mark.parametrize("other", [attempt("2-bb", data="b"), attempt("2-bb", training="train-other.0123456789ab")])
def test_checkpoints_of_other_data_and_of_another_training_are_left_alone(other: AttemptName, tmp_path: Path) -> None:
    first = take_over(tmp_path / "kept", attempt("1-aa"))
    first.mkdir()

    assert not take_over(tmp_path / "kept", other).exists()
    assert first.exists()


def test_only_folders_of_the_trainings_attempts_are_deleted_at_the_end(tmp_path: Path) -> None:
    other = attempt("1-aa", training="train-other.0123456789ab")
    for name in (attempt("1-aa"), attempt("2-bb", data="b"), other):
        take_over(tmp_path / "kept", name).mkdir()
    (tmp_path / "kept" / "notes.txt").write_text("mine")

    drop_attempts(tmp_path / "kept", attempt("1-aa").training)

    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"notes.txt", str(other)}
