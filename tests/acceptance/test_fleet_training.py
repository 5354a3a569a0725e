"""`producer train`: a worker of the fleet trains the classifier that `worker train` trains on one machine."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from transformers import AutoModelForSequenceClassification

from fleet.training.trained import trained_model_at
from producer.options import RunOptions
from support.fleet import Fleet
from support.fleet_trainings import TRAIN, FleetTrainings, measured
from support.injected_faults import STAND_IN, InjectedFaults
from support.labelled import write_topics
from support.models import tiny_classifier
from support.outputs import published_rows
from support.processes import run_command
from support.small_run import publish
from support.waiting import wait_until
from worker.scoring import load_scorer

ROWS = 120


@pytest.fixture
def trainings(fleet: Fleet, tmp_path: Path) -> FleetTrainings:
    for number in (0, 1):
        write_topics(tmp_path / "topics" / f"part-{number}.parquet", rows=ROWS // 2, seed=number)
    return FleetTrainings(fleet, tmp_path / "topics", tiny_classifier(tmp_path / "base"), tmp_path / "model")


@pytest.mark.slow
def test_a_worker_trains_what_worker_train_does_with_the_same_options(
    trainings: FleetTrainings, fleet: Fleet, tmp_path: Path
) -> None:
    training_id = trainings.enqueue()
    with trainings.worker():
        model = trainings.wait_until_done(training_id)

    alone = run_command(
        *("worker", "train", *trainings.options, "--output", tmp_path / "alone", "--device", "cpu"),
        environment=fleet.environment | {"OMP_NUM_THREADS": "1"},
    )
    assert alone.returncode == 0, alone.stderr
    in_place = trained_model_at(str(tmp_path / "alone"))
    assert in_place
    assert measured(model) == measured(in_place)
    assert AutoModelForSequenceClassification.from_pretrained(trainings.output).config.num_labels == 3
    assert not list(tmp_path.glob("model.checkpoints*"))
    told = fleet.call_producer("status", training_id, "--json")
    assert told.returncode == 0
    assert json.loads(told.stdout)["state"] == "done"
    again = fleet.call_producer("train", *trainings.options, "--output", trainings.output, "--wait")
    assert again.returncode == 0
    assert f"The model is at {trainings.output}." in again.stdout


@pytest.mark.slow
def test_a_worker_fits_a_head_to_a_frozen_encoder(trainings: FleetTrainings) -> None:
    frozen = replace(trainings, full=False)
    with trainings.worker():
        model = frozen.wait_until_done(frozen.enqueue())

    assert model.figures["accuracy"] > 0.5


@pytest.mark.slow
def test_a_mistake_that_a_worker_finds_is_told_in_one_sentence(trainings: FleetTrainings, fleet: Fleet) -> None:
    sent = fleet.call_producer("train", *trainings.options, "--task", "regression", "--output", trainings.output)
    training_id = sent.stdout.strip()
    with trainings.worker():
        wait_until(lambda: trainings.status(training_id).is_over, description="it fails", seconds=100)

    told = fleet.call_producer("status", training_id)

    assert told.returncode == 1
    first, *_, retry, cancel = told.stdout.splitlines()
    assert first.startswith('failed: The labels in "topic" are string, not numbers. Use --task classification. (on w1@')
    assert retry == f"When that is mended, try again: producer retry {training_id}"
    assert cancel.endswith(f"and give this one up: producer cancel {training_id}")
    assert "raceback" not in told.stdout


@pytest.mark.slow
def test_changed_data_fails_a_training_until_a_person_accepts_it(trainings: FleetTrainings, fleet: Fleet) -> None:
    training_id = trainings.enqueue()
    write_topics(trainings.data / "part-2.parquet", rows=ROWS, seed=2)
    with trainings.worker():
        wait_until(lambda: trainings.status(training_id).is_over, description="it fails", seconds=100)
        failed = fleet.call_producer("status", training_id)
        again = fleet.call_producer("retry", training_id)
        model = trainings.wait_until_done(training_id)

    assert failed.returncode == 1
    assert f"{trainings.data}: the data has changed since the training was enqueued" in failed.stdout
    assert "It begins again with what is there now." in again.stderr
    assert model.rows == 2 * ROWS


@pytest.mark.slow
def test_one_seat_does_a_run_and_a_training(
    trainings: FleetTrainings, fleet: Fleet, faults: InjectedFaults, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    anything = {"SHARDSIFT_TRAIN": "", "SHARDSIFT_SCORER": "", "LOKY_MAX_CPU_COUNT": "2"}
    fleet.environment |= faults.environment | TRAIN | anything
    run = fleet.call_producer(
        *("enqueue", "--input", shards, "--model", tiny_model, "--scorer", STAND_IN, "--output", tmp_path / "kept")
    )
    assert run.returncode == 0, run.stderr
    run_id, training_id = run.stdout.strip(), trainings.enqueue()
    listed = fleet.call_producer("runs")
    assert run_id in listed.stdout
    assert training_id in listed.stdout

    with fleet.machine("--gpus", "0"), fleet.finalizer():
        wait_until(lambda: fleet.ledger.publication(run_id), description="the run is published", seconds=200)
        trainings.wait_until_done(training_id)


@pytest.mark.slow
def test_a_large_model_teaches_a_small_one(trainings: FleetTrainings, fleet: Fleet, tmp_path: Path) -> None:
    """A run scores texts, and a training of the same fleet learns its scores."""
    teacher = tiny_classifier(tmp_path / "large", seed=1)
    options = RunOptions(
        input_uris=(str(trainings.data),),
        models=(str(teacher),),
        dtype="float32",
        output_uri=str(tmp_path / "labelled"),
        keep_all=True,
    )
    run = publish(
        fleet.ledger, load_scorer(str(teacher), "float32", parity_rows=0), options, scratch=tmp_path / "scratch"
    )
    middle = median(published_rows(tmp_path / "labelled")["score"].to_pylist())

    told = fleet.call_producer(
        *("train", "--label-with", run.run_id, "--threshold", str(middle), "--base-model", teacher),
        *("--output", tmp_path / "small"),
    )
    assert told.returncode == 0, told.stderr
    learned = replace(trainings, output=tmp_path / "small")
    with learned.worker():
        model = learned.wait_until_done(told.stdout.strip())

    assert model.rows == ROWS
    assert f"`large` said of it in the run `{run.run_id}`" in (tmp_path / "small" / "README.md").read_text()
