"""Trainings are in a ledger of their own: enqueued, claimed, paused, cancelled and finished like the shards of runs."""

import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from celery import Celery

from fleet.attempt_report import AttemptReport
from fleet.demand import TRAINING, open_demands
from fleet.errors import Cancelled, LeaseLost, ShardError, UsageError
from fleet.ledger import Claim, Ledger, Refusal
from fleet.ledger.keys import Keys
from fleet.queues import queue_length, shards_in_queue
from fleet.receipt import Provenance
from fleet.settings import Settings
from fleet.training.data import unchanged_data
from fleet.training.model import MARK, TrainedModel
from fleet.training.options import TrainOptions
from fleet.training.progress import LossPoint, TrainProgress
from fleet.training.receipt import TrainReceipt
from fleet.training.task import TRAIN_QUEUE, WHOLE, FleetTraining
from producer.doctor.fleet_state import fleet_checks
from producer.finalizer.sweep import Sweeper
from producer.flower.runs_list import runs_list
from producer.flower.training_look import training_look
from producer.steering import SteeringOptions
from producer.training.enqueue import enqueue_training
from producer.training.plan import plan_training
from producer.training.report import training_screen
from producer.training.several import training_attention
from producer.training.status import training_status
from producer.training.steering import cancel_training, retry_training
from support.labelled import write_topics
from support.processes import call_command, run_command
from support.waiting import wait_until
from worker.service.kept_checkpoints import drop_unneeded
from worker.service.training_lease import TrainingLease
from worker.service.watchdog import Watchdog
from worker.training.attempt_checkpoints import attempt_checkpoints
from worker.training.attempt_name import AttemptName

HALF = TrainProgress(
    step=12,
    planned_steps=24,
    resumed_from=8,
    losses=(LossPoint(step=8, loss=1.1, held_out_loss=0.9), LossPoint(step=12, loss=0.75)),
)

FORESEEN = """Traceback (most recent call last):
  File "training_work.py", line 110, in _trained
    raise _as_of_fleet(error) from error
fleet.errors.ShardError: All labels are 1."""
UNFORESEEN = """Traceback (most recent call last):
  File "full.py", line 60, in train_full
    steps = taken(17)
ValueError: 17 is odd"""
NO_FINALIZER = "No finalizer is running: a lost training is not sent again. Start one: producer finalizer"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model folder, of which a producer reads nothing else."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def options(base: Path, tmp_path: Path) -> TrainOptions:
    data = write_topics(tmp_path / "topics.parquet", rows=30)
    return TrainOptions(
        data=str(data), label_column="topic", base_model=str(base), output=str(tmp_path / "model"), full=True
    )


@pytest.fixture
def trainings(ledger: Ledger) -> Ledger[FleetTraining]:
    return ledger.trainings


def enqueue(options: TrainOptions, ledger: Ledger[FleetTraining], app: Celery, priority: int | None = None) -> str:
    plan = plan_training(options)
    return enqueue_training(plan, ledger, app, resend_seconds=60, steering=SteeringOptions(priority=priority))


def claimed(ledger: Ledger[FleetTraining], training_id: str, owner: str = "w1@box/1") -> Claim[FleetTraining]:
    claim = ledger.claim(training_id, WHOLE, owner)
    assert isinstance(claim, Claim)
    return claim


def report(progress: TrainProgress) -> AttemptReport:
    return AttemptReport(
        device="cpu", rows_per_second=32.0, rows_written=0, rows_kept=0, tokens=0, seconds={}, training=progress
    )


def a_lease(ledger: Ledger[FleetTraining], claim: Claim[FleetTraining]) -> TrainingLease:
    """What holds the claim of a worker that trains."""
    return TrainingLease(
        ledger,
        claim,
        device="cpu",
        stopping=threading.Event(),
        report=lambda line: None,
        report_seconds=60,
        watchdog=Watchdog(900, sys.__stderr__),
    )


def finish(ledger: Ledger[FleetTraining], claim: Claim[FleetTraining]) -> None:
    """What a worker does at the end, without the model's weights."""
    model = TrainedModel(
        training_id=claim.run_id,
        rows=30,
        device="cpu",
        seconds=1.0,
        figures={"accuracy": 0.75},
        lines=(("accuracy", "75.0%"),),
        progress=dataclasses.replace(HALF, step=24),
    )
    output = Path(claim.spec.spec.output_uri)
    output.mkdir(exist_ok=True)
    (output / MARK).write_bytes(model.to_json())
    made = Provenance(worker="w1", attempt=1, device="cpu", versions={}, started_at=1.0, finished_at=2.0)
    ledger.complete(claim, TrainReceipt(output_uri=str(output), size_bytes=7, model=model, provenance=made))


def test_a_training_is_one_message_in_the_queue_of_trainings(
    options: TrainOptions, ledger: Ledger, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    enqueue(options, trainings, app)

    assert list(shards_in_queue(ledger.redis, TRAIN_QUEUE, training_id)) == [WHOLE]
    assert trainings.run_ids() == [training_id]
    assert ledger.run_ids() == []
    assert [(demand.load, demand.queued) for demand in open_demands(ledger)] == [(TRAINING, 1)]


def test_its_paths_are_those_of_any_machine(
    options: TrainOptions, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = dataclasses.replace(options, data="topics.parquet", base_model="base", output="model")

    training = plan_training(here).training

    assert training.spec == plan_training(options).training.spec
    assert training.spec.base_model == str(base.resolve())
    assert training.checkpoints_uri == f"{tmp_path / 'model'}.checkpoints"


def test_progress_and_losses_are_in_the_status(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)

    trainings.renew(claim, rows=384, report=report(HALF))

    status = training_status(trainings, training_id)
    assert (status.word, status.progress, status.exit_code) == ("running", HALF, 3)
    screen = "\n".join(training_screen(status))
    assert screen.startswith("step 12 of 24: loss 0.7500, held-out 0.9000; about 12 s left")
    assert "50% of steps" in screen
    assert "w1@box/1 (cpu); 32 rows/s; went on after step 8" in screen
    assert status.as_json()["loss"] == 0.75


def test_a_training_whose_worker_hangs_says_so_and_what_helps(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)
    trainings.renew(claim, rows=384, report=dataclasses.replace(report(HALF), idle_seconds=1500))
    slow = "\n".join(training_screen(training_status(trainings, training_id)))

    trainings.renew(claim, rows=384, report=dataclasses.replace(report(HALF), idle_seconds=2400))

    screen = "\n".join(training_screen(training_status(trainings, training_id)))
    assert "No step" not in slow
    said = "No step and no batch of texts for 40 min. If the log of w1@box/1 says nothing either"
    assert screen.startswith(f"running: {said}")
    assert screen.count(said) == 1
    (attention,) = training_attention([training_status(trainings, training_id)])
    assert attention.startswith(f"{training_id} is running: {said}")


def test_a_worker_says_how_long_it_has_taken_no_step(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    lease = a_lease(trainings, claimed(trainings, training_id))

    def idle() -> float:
        lease.confirm()
        return training_status(trainings, training_id).idle_seconds or 0.0

    with lease:
        lease.on_progress(HALF, 384)
        wait_until(lambda: idle() > 1, description="it is idle for a second")
        before = idle()
        lease.on_sign_of_life()
        after = idle()

    assert after < before


def test_the_work_of_all_attempts_has_its_price(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    hour = {"worker_ms": 3_600_000, "device_ms:NVIDIA L4": 3_600_000}
    trainings.redis.hset(Keys(training_id, "training").run, mapping=hour)

    status = training_status(trainings, training_id)

    assert " of all attempts together, $0.80 by list prices" in "\n".join(training_screen(status))
    (cost,) = status.as_json()["costs"]  # type: ignore[misc]
    assert cost["device_cost"] == 0.8


def test_a_finished_training_shows_its_figures_and_is_not_done_again(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    finish(trainings, claimed(trainings, training_id))

    enqueue(options, trainings, app)

    status = training_status(trainings, training_id)
    assert (status.word, status.exit_code) == ("done", 0)
    assert "  accuracy: 75.0%" in training_screen(status)
    assert trainings.claim(training_id, WHOLE, "w2@box/2") is Refusal.DONE


def test_a_model_that_was_removed_is_trained_again(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    finish(trainings, claimed(trainings, training_id))
    (Path(options.output) / MARK).unlink()
    Path(options.output).rmdir()
    assert training_status(trainings, training_id).word == "damaged"

    enqueue(options, trainings, app)

    assert training_status(trainings, training_id).word == "queued"
    claimed(trainings, training_id)


def test_changed_data_is_one_clear_error_once_the_model_is_there(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    finish(trainings, claimed(trainings, enqueue(options, trainings, app)))
    write_topics(Path(options.data), rows=30, seed=1)

    with pytest.raises(UsageError, match="has changed since the model at .* was trained on it"):
        enqueue(options, trainings, app)


def test_a_paused_training_is_given_back_and_not_claimed(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)

    trainings.pause(training_id)

    assert trainings.renew(claim, rows=0) is False
    trainings.release(claim)
    assert trainings.claim(training_id, WHOLE, "w2@box/2") is Refusal.PAUSED
    assert training_status(trainings, training_id).word == "paused"
    trainings.resume(training_id)
    assert claimed(trainings, training_id).attempt == 1


@pytest.mark.parametrize(
    ("end", "told", "further"),
    [
        ("pause", "paused", ["Resume it: producer resume {}", NO_FINALIZER]),
        ("cancel", "cancelled", ["Take it up again: producer retry {}"]),
    ],
)
def test_a_training_that_a_person_stopped_shows_how_far_it_came(
    end: str, told: str, further: list[str], options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)
    with a_lease(trainings, claim) as lease:
        lease.on_progress(HALF, 384)
        lease.confirm()
        getattr(trainings, end)(training_id)
        lease.on_checkpoint(12)
        lease.tell_stop()
    trainings.release(claim)

    status = training_status(trainings, training_id)

    screen = training_screen(status)
    assert screen[0] == f"{told} after step 12 of 24: loss 0.7500, held-out 0.9000"
    assert any(line.endswith("50% of steps") for line in screen)
    assert f"kept in  {options.output}.checkpoints, up to step 12" in screen
    assert screen[-len(further) :] == [line.format(training_id) for line in further]
    page = training_look(trainings, training_id)
    assert (page["state"], page["step"], page["planned_steps"]) == (told, 12, 24)
    assert page["headline"] == "after step 12 of 24: loss 0.7500, held-out 0.9000"
    assert len(page["losses"]) == 2  # type: ignore[arg-type]


def test_a_training_that_lost_its_worker_shows_how_far_it_came(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    trainings.renew(claimed(trainings, training_id), rows=384, report=report(dataclasses.replace(HALF, checkpoint=8)))

    trainings.report_crash(training_id, WHOLE, "w1@box/1", "killed by signal 9")

    screen = training_screen(training_status(trainings, training_id))
    assert any(line.endswith("50% of steps") for line in screen)
    assert f"kept in  {options.output}.checkpoints, up to step 8" in screen


def test_a_training_of_which_no_step_is_taken_yet_does_not_hide_how_far_it_came(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    """The next attempt loads the model, and dies of that."""
    training_id = enqueue(options, trainings, app)
    first = claimed(trainings, training_id)
    trainings.renew(first, rows=384, report=report(HALF))
    trainings.release(first)
    trainings.renew(claimed(trainings, training_id), rows=0, report=report(TrainProgress(doing="It loads.")))

    trainings.report_crash(training_id, WHOLE, "w1@box/1", "killed by signal 9")

    assert training_status(trainings, training_id).progress == HALF


def test_a_retry_of_a_training_that_has_not_failed_says_one_thing(
    options: TrainOptions,
    trainings: Ledger[FleetTraining],
    app: Celery,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training_id = enqueue(options, trainings, app)
    trainings.pause(training_id)

    retry_training(trainings, training_id, Settings(redis_url=redis_url))

    assert capsys.readouterr().err.splitlines()[:2] == [
        f"Training {training_id} is paused, and has not failed: nothing to retry.",
        f"Resume it: producer resume {training_id}",
    ]


@pytest.mark.parametrize(
    ("command", "option", "told"),
    [
        ("status", "--verify", "--verify is for the output of a run."),
        ("retry", "--all", "--all is for the shards of a run"),
    ],
)
def test_an_option_that_is_for_runs_is_refused_for_a_training(
    command: str,
    option: str,
    told: str,
    options: TrainOptions,
    trainings: Ledger[FleetTraining],
    app: Celery,
    redis_url: str,
) -> None:
    training_id = enqueue(options, trainings, app)

    done = call_command("producer", command, training_id, option, environment={"REDIS_URL": redis_url})

    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr


def test_a_cancelled_training_is_told_apart_from_a_lost_one(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)

    trainings.cancel(training_id)

    with pytest.raises(Cancelled, match=f"Training {training_id} is no longer held .* the training was cancelled"):
        trainings.renew(claim, rows=0)
    trainings.release(claim)
    second_claim = trainings.claim(training_id, WHOLE, "w1@box/1")
    assert second_claim is Refusal.CANCELLED
    assert training_status(trainings, training_id).exit_code == 4


@pytest.mark.parametrize(
    ("end", "days", "is_kept"),
    [
        ("pause", 90, True),
        ("fail", 13, True),
        ("fail", 15, False),
        ("cancel", 13, True),
        ("cancel", 15, False),
        ("finish", 0, False),
    ],
)
def test_checkpoints_on_a_workers_disk_are_kept_as_long_as_a_retry_may_need_them(
    end: str,
    days: int,
    is_kept: bool,
    options: TrainOptions,
    trainings: Ledger[FleetTraining],
    app: Celery,
    tmp_path: Path,
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)
    attempt = AttemptName.of(training_id, data_identity=claim.shard.identity, token=claim.token)
    kept = attempt_checkpoints(None, attempt, tmp_path / "scratch").take_over()
    kept.mkdir()
    match end:
        case "pause":
            trainings.pause(training_id)
        case "fail":
            trainings.fail(claim, "No space left.", "")
        case "cancel":
            trainings.cancel(training_id)
        case "finish":
            finish(trainings, claim)
    for folder in (kept, kept.parent):
        os.utime(folder, (0, time.time() - days * 86_400))

    drop_unneeded(trainings, tmp_path / "scratch")

    assert kept.exists() == is_kept


def test_a_late_worker_cannot_record_its_model(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    late = claimed(trainings, training_id)
    trainings.release(late)
    claimed(trainings, training_id, owner="w2@box/2")

    with pytest.raises(LeaseLost, match=f"Training {training_id} was finished by another attempt"):
        finish(trainings, late)


def test_the_sweep_sends_a_lost_message_again(
    options: TrainOptions, ledger: Ledger, trainings: Ledger[FleetTraining], app: Celery, redis_url: str
) -> None:
    training_id = enqueue(options, trainings, app)
    ledger.redis.delete(*ledger.redis.keys(f"{TRAIN_QUEUE}*"))
    settings = Settings(redis_url=redis_url, resend_seconds=0.001)

    Sweeper(app, ledger, settings).sweep()

    assert list(shards_in_queue(ledger.redis, TRAIN_QUEUE, training_id)) == [WHOLE]


def test_priorities_order_trainings(
    options: TrainOptions, ledger: Ledger, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    enqueue(options, trainings, app, priority=2)

    assert queue_length(ledger.redis, TRAIN_QUEUE, priority=2) == 1
    assert [demand.priority for demand in open_demands(ledger)] == [2]


def test_a_failed_training_says_why_and_what_helps_without_a_traceback(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)

    trainings.fail(claimed(trainings, training_id), "All labels are 1.", FORESEEN)

    status = training_status(trainings, training_id)
    assert (status.word, status.exit_code) == ("failed", 1)
    screen = training_screen(status)
    assert screen[0] == "failed: All labels are 1. (on w1@box/1, attempt 1)"
    assert screen[-1] == f"When that is mended, try again: producer retry {training_id}"
    assert "raceback" not in "\n".join(screen)
    page = training_look(trainings, training_id)
    assert (page["traceback"], page["next"]) == ("", [screen[-1]])
    assert page["headline"] == "All labels are 1. (on w1@box/1, attempt 1)"


def test_a_training_that_failed_after_some_steps_goes_on_after_its_last_checkpoint(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)
    trainings.renew(claim, rows=384, report=report(dataclasses.replace(HALF, checkpoint=8)))

    trainings.fail(claim, "No space left.", "")

    screen = training_screen(training_status(trainings, training_id))
    assert any(line.endswith("50% of steps") for line in screen)
    assert screen[-1] == f"When that is mended, go on after the last checkpoint: producer retry {training_id}"


def test_a_wrong_option_names_the_way_to_another_one(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)

    trainings.fail(claimed(trainings, training_id), "The labels are 0 to 1. Name another one with --threshold.", "")

    last = training_screen(training_status(trainings, training_id))[-1]
    assert last.startswith("With other options it is another training: repeat your `producer train` with them")
    assert last.endswith(f": producer cancel {training_id}")


def test_an_unexpected_error_comes_with_the_end_of_its_traceback(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    claim = claimed(trainings, training_id)

    trainings.record_crash(claim, "ValueError: 17 is odd", UNFORESEEN)
    waits = training_screen(training_status(trainings, training_id))
    trainings.redis.sadd(Keys(training_id, "training").failed, WHOLE)
    failed = training_screen(training_status(trainings, training_id))

    told = [
        "The traceback ends with these lines; --json has it whole:",
        *(f"    {line}" for line in UNFORESEEN.split("\n")),
    ]
    for screen in (waits, failed):
        start = screen.index(told[0])
        assert screen[start : start + len(told)] == told
    assert training_look(trainings, training_id)["traceback"] == UNFORESEEN


def test_a_failed_training_that_is_given_up_is_cancelled_and_may_still_be_retried(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery, redis_url: str
) -> None:
    training_id = enqueue(options, trainings, app)
    trainings.fail(claimed(trainings, training_id), "All labels are 1.", "")

    cancel_training(trainings, training_id)

    assert training_status(trainings, training_id).word == "cancelled"
    retry_training(trainings, training_id, Settings(redis_url=redis_url))
    assert training_status(trainings, training_id).word == "queued"


def test_a_training_without_workers_names_the_command(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    status = training_status(trainings, enqueue(options, trainings, app))

    assert status.is_unserved
    assert "Start one: worker start --train" in "\n".join(training_screen(status))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"data": "missing.parquet"}, "missing.parquet"),
        ({"text_column": "body"}, r'has no column "body"; it has: text, topic, label. Name one with --text-column'),
        ({"label_column": "stars"}, r'has no column "stars".* Name one with --label-column'),
        ({"base_model": "./nowhere"}, "There is no model folder ./nowhere"),
        (
            {"output": "s3://bucket/model"},
            "A model is written to a folder or to hf://USER/NAME, and --output is s3://bucket/model",
        ),
        ({"checkpoints": "hf://me/kept"}, "Checkpoints go to a folder or a bucket, .* and not to hf://me/kept"),
        ({"checkpoints": "s4://bucket/kept"}, "Checkpoints go to a folder or a bucket, .* and not to s4://bucket/kept"),
        ({"checkpoints": "s3://me:secret@bucket/kept"}, "--checkpoints s3://.* carries a password"),
        ({"data": None, "label_with": "https://me:secret@host/labelled"}, "--label-with https://.* carries a password"),
    ],
)
def test_a_wrong_option_is_one_clear_error_before_anything_is_enqueued(
    options: TrainOptions, changed: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        plan_training(dataclasses.replace(options, **changed))  # type: ignore[arg-type]


def test_an_output_with_other_files_is_refused(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    Path(options.output).mkdir()
    (Path(options.output) / "notes.txt").write_text("mine")

    with pytest.raises(UsageError, match="already exists. Name another folder for the model"):
        enqueue(options, trainings, app)

    assert trainings.run_ids() == []


class TestManyFiles:
    @pytest.fixture
    def folder(self, options: TrainOptions, tmp_path: Path) -> TrainOptions:
        for number in (0, 1):
            write_topics(tmp_path / "many" / f"part-{number}.parquet", rows=30, seed=number)
        return dataclasses.replace(options, data=str(tmp_path / "many"))

    def test_each_of_them_is_part_of_what_identifies_the_data(self, folder: TrainOptions, tmp_path: Path) -> None:
        def identity() -> str:
            return plan_training(folder).data.identity

        seen = [identity()]
        write_topics(tmp_path / "many" / "part-1.parquet", rows=30, seed=5)
        seen.append(identity())
        write_topics(tmp_path / "many" / "part-2.parquet", rows=30, seed=2)
        seen.append(identity())
        (tmp_path / "many" / "part-2.parquet").rename(tmp_path / "many" / "part-3.parquet")
        seen.append(identity())
        (tmp_path / "many" / "part-3.parquet").unlink()

        assert len(set(seen)) == 4
        assert identity() == seen[1]

    def test_a_folder_that_is_touched_or_moved_holds_the_same_data(self, folder: TrainOptions, tmp_path: Path) -> None:
        before = plan_training(folder).data.identity
        (tmp_path / "many" / "part-0.parquet").touch()
        (tmp_path / "many").rename(tmp_path / "moved")

        moved = dataclasses.replace(folder, data=str(tmp_path / "moved" / "*.parquet"))

        assert plan_training(moved).data.identity == before

    def test_the_files_to_measure_on_count_too(self, folder: TrainOptions, tmp_path: Path) -> None:
        measured = write_topics(tmp_path / "unseen.parquet", rows=30)
        folder = dataclasses.replace(folder, validation=str(measured))
        before = plan_training(folder).data.identity

        write_topics(measured, rows=30, seed=1)

        assert plan_training(folder).data.identity != before

    def test_a_file_that_changes_while_they_are_read_is_noticed(self, folder: TrainOptions, tmp_path: Path) -> None:
        plan = plan_training(folder)
        with unchanged_data(plan.training.spec, plan.data):
            pass

        with (
            pytest.raises(ShardError, match="many: the data has changed since the training was enqueued"),
            unchanged_data(plan.training.spec, plan.data),
        ):
            write_topics(tmp_path / "many" / "part-1.parquet", rows=30, seed=5)

    def test_one_without_the_columns_is_named_before_anything_is_enqueued(
        self, folder: TrainOptions, tmp_path: Path
    ) -> None:
        pq.write_table(pa.table({"text": ["a"]}), tmp_path / "many" / "part-2.parquet")

        with pytest.raises(UsageError, match=r'part-2.parquet has no column "topic"'):
            plan_training(folder)


@pytest.mark.parametrize(
    ("output", "given", "uri"),
    [
        ("/mnt/model", None, "/mnt/model.checkpoints"),
        ("/mnt/model", "/mnt/kept", "/mnt/kept"),
        ("/mnt/model", "s3://bucket/kept", "s3://bucket/kept"),
        ("hf://me/model", "s3://bucket/kept", "s3://bucket/kept"),
        ("hf://me/model", None, None),
    ],
)
def test_checkpoints_are_where_the_user_says_or_beside_a_folder(
    options: TrainOptions, output: str, given: str | None, uri: str | None
) -> None:
    plan = plan_training(dataclasses.replace(options, output=output, checkpoints=given))

    assert plan.training.checkpoints_uri == uri
    assert ("If it is lost, another one begins again" in (plan.warning or "")) == (uri is None)


def test_the_runs_page_lists_a_training_and_has_its_losses(
    options: TrainOptions, ledger: Ledger, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    trainings.renew(claimed(trainings, training_id), rows=384, report=report(HALF))

    (row,) = json.loads(json.dumps(runs_list(ledger)))["trainings"]
    page = json.loads(json.dumps(training_look(trainings, training_id)))

    assert page["traceback"] == ""
    assert (row["run_id"], row["state"], row["step"], row["planned_steps"]) == (training_id, "running", 12, 24)
    assert page["losses"] == [
        {"step": 8, "loss": 1.1, "held_out_loss": 0.9},
        {"step": 12, "loss": 0.75, "held_out_loss": None},
    ]
    assert page["headline"].startswith("step 12 of 24: loss 0.7500")
    assert ["output", str(options.output)] in page["lines"]


def test_the_page_of_a_finished_training_has_its_figures(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery
) -> None:
    training_id = enqueue(options, trainings, app)
    finish(trainings, claimed(trainings, training_id))

    page = training_look(trainings, training_id)

    assert (page["state"], page["level"]) == ("done", "good")
    assert ("accuracy", "75.0%") in page["lines"]  # type: ignore[operator]


def test_the_doctor_names_a_training_without_workers(
    options: TrainOptions, trainings: Ledger[FleetTraining], app: Celery, redis_url: str
) -> None:
    training_id = enqueue(options, trainings, app)
    (workers,) = [check for check in fleet_checks(Settings(redis_url=redis_url)) if check.name == "workers"]

    verdict = workers.look()

    assert f"No worker trains {training_id}" in verdict.says
    assert verdict.mend == "Start one: worker start --train"


def test_without_a_fleet_the_command_names_the_one_for_this_machine(options: TrainOptions) -> None:
    given = ("--data", options.data, "--label-column", "topic", "--base-model", options.base_model)

    done = call_command("producer", "train", *given, "--output", options.output, environment={"REDIS_URL": ""})

    assert done.returncode == 2
    assert "train on this machine: worker train" in done.stderr


def test_an_upload_that_takes_longer_than_a_hang_is_not_ended(redis_url: str, tmp_path: Path) -> None:
    """The watchdog ends the whole process, so this has one of its own."""
    script = """
import sys, threading, redis
from fleet.ledger import Ledger
from support.ledger_trainings import HALF, claim_training, create_training
from support.waiting import wait_until
from worker.service.training_lease import TrainingLease
from worker.service.watchdog import Watchdog

ledger = Ledger(redis.Redis.from_url(sys.argv[1], decode_responses=True)).trainings
watchdog = Watchdog(0.5, open(sys.argv[2], "w"))
lease = TrainingLease(
    ledger, claim_training(ledger, create_training(ledger, "slow")), device="cpu", stopping=threading.Event(),
    report=lambda line: None, report_seconds=60, watchdog=watchdog,
)
with lease:
    lease.on_progress(HALF, 384)
    lease.confirm()  # before the upload
    wait_until(lambda: watchdog.idle_seconds > 1.5, description="it is uploaded")
    lease.confirm()
print("uploaded")
"""

    done = run_command(
        "python",
        "-c",
        script,
        redis_url,
        tmp_path / "traces",
        environment={"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert (done.returncode, done.stdout.strip()) == (0, "uploaded"), done.stderr
