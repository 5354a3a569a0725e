"""A worker that is stopped or killed at any step of its start leaves nothing behind, and takes no shard before it is ready."""

import shutil
import signal
from pathlib import Path

import pytest

from support.disturbed_runs import DisturbedRuns, child_of
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.leftovers import processes_with
from support.waiting import wait_until

SECONDS = 10
CONNECTED = ("celery.worker.consumer.connection:Connection.start", "after")
CHILD_SPAWNED = ("billiard.popen_spawn_posix:Popen._launch", "after")
CHILD_LOADS = ("shardsift.worker.service.child:load_handed_down", "before")
STEPS = [
    ("shardsift.fleet.scorers.kinds:resolve_model", "before"),
    ("shardsift.worker.service.parent:Parent.__init__", "after"),
    CHILD_SPAWNED,
    CONNECTED,
    ("celery.worker.consumer.tasks:Tasks.start", "after"),
    ("celery.worker.loops:_timer_entries", "before"),
    CHILD_LOADS,
    ("shardsift.worker.service.child:load_handed_down", "after"),
    ("shardsift.worker.service.ipc:leave_loaded", "after"),
]


def wait_until_gone(faults: InjectedFaults) -> None:
    wait_until(lambda: not processes_with(faults.folder), description="parent and child are gone", seconds=SECONDS)


def held_messages(runs: DisturbedRuns) -> int:
    return int(runs.fleet.ledger.redis.hlen("unacked"))


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=() if step == CHILD_LOADS else pytest.mark.faults, id="-".join(step)) for step in STEPS],
)
def test_a_worker_stopped_at_any_step_of_its_start_ends_in_time(step: tuple[str, str], runs: DisturbedRuns) -> None:
    of_child = ("shardsift.worker.service.child", "shardsift.worker.service.ipc")
    runs.faults.use_stand_in(load_seconds=3 if step[0].startswith(of_child) else 60)
    runs.faults.at(*step, "terminate worker")

    with runs.worker() as worker:
        wait_until(runs.faults.fired, description="the worker is told to leave")
        wait_until_gone(runs.faults)

    assert worker.returncode in (0, -signal.SIGTERM)


@pytest.mark.faults
def test_a_starting_child_ends_with_its_killed_parent(runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(load_seconds=60)
    runs.faults.at(*CHILD_SPAWNED, "kill")

    with runs.worker() as worker:
        wait_until(runs.faults.fired, description="the parent is killed")
        worker.wait(timeout=SECONDS)
        wait_until_gone(runs.faults)


@pytest.mark.faults
def test_a_worker_takes_no_shard_and_is_not_ready_while_its_model_loads(runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(load_seconds=2)
    run_id = runs.enqueue()
    log = runs.fleet.log("w1")

    with runs.worker() as worker:
        hold_nothing_until_loaded(runs, times=1)
        runs.wait_for_rows(run_id)
        child_of(worker).kill()
        wait_until(lambda: not held_messages(runs), description="the dead process' message is answered")
        hold_nothing_until_loaded(runs, times=2)
        wait_until(lambda: not runs.fleet.ledger.counts(run_id).open, description="all shards are done")

    lines = log.read_text()
    assert lines.index("is loaded") < lines.index("is ready") < lines.index(" in, ")


def hold_nothing_until_loaded(runs: DisturbedRuns, *, times: int) -> None:
    """Watch until the log reports this many loaded models. A claim before that was made too early."""
    log = runs.fleet.log("w1")

    def is_loaded() -> bool:
        held = held_messages(runs)
        loaded = log.exists() and log.read_text().count("is loaded") >= times
        assert loaded or not held, "a message was taken while the model loads"
        return loaded

    wait_until(is_loaded, description="the model is loaded")


@pytest.mark.faults
def test_a_worker_that_started_on_a_gpu_exits_when_the_gpu_is_gone(runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in(seconds_a_batch=0.2)
    runs.faults.set_device("cuda")
    run_id = runs.enqueue()

    with runs.worker() as worker:
        runs.wait_for_rows(run_id)
        runs.faults.set_device("cpu")
        child_of(worker).kill()
        worker.wait(timeout=30)

    assert worker.returncode == 70
    assert "worker: There is no device cuda" in runs.fleet.log("w1").read_text()
    assert runs.fleet.ledger.counts(run_id).running == 0
    wait_until_gone(runs.faults)


@pytest.mark.faults
def test_a_worker_whose_model_folder_was_changed_exits_before_it_scores_with_other_weights(
    fleet: Fleet, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Uses the real model, which is loaded a second time after its process was killed."""
    model, log = Path(shutil.copytree(tiny_model, tmp_path / "model")), fleet.log("w1")
    options = ("--input", shards, "--model", model, "--output", tmp_path / "out", "--dtype", "float32", "--keep-all")

    with fleet.worker(model, environment={"SHARDSIFT_DTYPE": "float32"}) as worker:
        wait_until(lambda: "is ready" in log.read_text(), description="the model is loaded", seconds=120)
        worker.send_signal(signal.SIGSTOP)  # its child is idle and gets no message
        run_id = fleet.producer("enqueue", *options).stdout.strip()
        negate_weights(model)
        child_of(worker).kill()
        worker.send_signal(signal.SIGCONT)
        wait_until(
            lambda: worker.poll() is not None or not fleet.ledger.counts(run_id).open,
            description="the worker has left, or has scored the run",
            seconds=120,
        )

    assert fleet.ledger.counts(run_id).done == 0
    assert worker.returncode == 70
    assert f"worker: The files of the model folder {model} have changed" in log.read_text()


def negate_weights(model: Path) -> None:
    """Change the model so that it still loads, but gives other scores."""
    from safetensors.torch import load_file, save_file

    weights = model / "model.safetensors"
    save_file({name: -values for name, values in load_file(weights).items()}, weights, metadata={"format": "pt"})


@pytest.mark.faults
def test_a_worker_whose_processes_die_while_they_load_gives_up(runs: DisturbedRuns) -> None:
    runs.faults.at("shardsift.worker.service.child:load_handed_down", "before", "kill", times=20)

    with runs.worker() as worker:
        worker.wait(timeout=60)

    assert worker.returncode == 70
    assert "worker: 5 processes in a row ended before they had loaded the model" in runs.fleet.log("w1").read_text()
    assert runs.faults.fired() in (5, 6)


def test_a_process_that_loses_its_device_while_it_loads_is_followed_by_one_that_serves(runs: DisturbedRuns) -> None:
    runs.faults.use_stand_in()
    runs.faults.at("shardsift.worker.service.child:load_handed_down", "before", "device lost")
    log = runs.fleet.log("w1")

    with runs.worker():
        wait_until(lambda: log.exists() and "is ready" in log.read_text(), description="the worker serves")

    assert "The GPU failed when graphed batches were tried" in log.read_text()
    assert runs.faults.fired() == 1


def test_any_error_at_the_start_ends_the_worker_with_one_line(runs: DisturbedRuns) -> None:
    runs.faults.at("shardsift.fleet.scorers.sequence_classifier:revision_of_folder", "before", "permission error")

    with runs.worker() as worker:
        worker.wait(timeout=30)

    assert worker.returncode == 70
    assert runs.fleet.log("w1").read_text() == (
        "worker: PermissionError: [Errno 13] Permission denied: 'model.safetensors'\n"
    )
