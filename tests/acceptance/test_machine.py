"""`worker start` on a machine: a worker on each GPU, restarted and replaced as needed, and stopped together.

The machine has four stand-in GPUs: an `nvidia-smi` that lists them. The scorer is the stand-in, which needs none.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from shardsift.fleet.presence.announcements import WorkerState, list_machines, list_workers
from shardsift.fleet.process.broker import queue_length
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.nvidia_smi import install_nvidia_smi
from support.outputs import manifest_lines
from support.waiting import wait_until

GPUS = 4
STOP_SECONDS = 10


@pytest.fixture
def machine_fleet(fleet: Fleet, faults: InjectedFaults, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose machines have four GPUs."""
    faults.use_stand_in(rows_a_batch=2, seconds_a_batch=0.3)
    install_nvidia_smi(tmp_path / "bin", gpus=GPUS)
    fleet.environment |= faults.environment | {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SHARDSIFT_LEASE_SECONDS": "3",
        "LOKY_MAX_CPU_COUNT": "2",
    }
    fleet.environment.pop("CUDA_VISIBLE_DEVICES", None)
    return fleet


@pytest.fixture
def enqueue(machine_fleet: Fleet, shards: Path, tmp_path: Path) -> Callable[..., str]:
    """Enqueue a run of the named model. Returns its id."""

    return partial(machine_fleet.enqueue_stand_in, shards, tmp_path)


def workers(fleet: Fleet, *activities: str) -> list[WorkerState]:
    return [state for state in list_workers(fleet.ledger.redis) if not activities or state.activity in activities]


def gpus(count: int) -> dict[str, str]:
    """The variable with which a machine uses its first GPUs only."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))}


def log_of(fleet: Fleet) -> str:
    return fleet.log("machine").read_text()


@pytest.mark.faults
def test_each_gpu_has_a_worker_which_comes_back_when_it_dies_and_all_stop_together(
    machine_fleet: Fleet, enqueue: Callable[..., str]
) -> None:
    fleet, run_id = machine_fleet, enqueue("model")

    with fleet.finalizer(), fleet.machine() as machine:
        wait_until(lambda: len(workers(fleet, "busy")) == GPUS, description="each worker has a shard", seconds=60)
        first = workers(fleet)
        environments = [psutil.Process(worker.pid).environ() for worker in first]

        os.killpg(first[0].pid, signal.SIGKILL)
        wait_until(lambda: is_replaced(fleet, first[0]), description="the killed worker is back", seconds=60)
        came_back = workers(fleet)

        told = time.monotonic()
        machine.send_signal(signal.SIGTERM)
        machine.wait(timeout=STOP_SECONDS)
        seconds = time.monotonic() - told

    assert [worker.name.split("@")[0] for worker in first] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["0", "1", "2", "3"]
    for environment in environments:
        assert environment["SHARDSIFT_THREADS"] == environment["RAYON_NUM_THREADS"] == "1"
    assert [worker.name.split("@")[0] for worker in came_back] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert "gpu0 has ended: killed by SIGKILL. It starts again in 1 s" in log_of(fleet)
    assert machine.returncode == 0
    assert seconds < STOP_SECONDS
    assert workers(fleet) == []
    counts = fleet.ledger.counts(run_id)
    assert counts.running <= 1  # the killed worker's, until its lease expires
    assert counts.failed == 0
    assert queue_length(fleet.ledger.redis, fleet.ledger.spec(run_id).queue) >= counts.queued
    assert fleet.ledger.redis.hlen("unacked") <= 1


def is_replaced(fleet: Fleet, killed: WorkerState) -> bool:
    return len(workers(fleet)) == GPUS and killed.pid not in {worker.pid for worker in workers(fleet, "busy")}


@pytest.mark.faults
def test_a_machine_without_a_model_serves_one_run_after_the_other(
    machine_fleet: Fleet, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    first = enqueue("one", "--dtype", "float32")
    second = enqueue("two", "--limit-rows", "24")

    with machine_fleet.finalizer(), machine_fleet.machine("--exit-when-idle", "10s", environment=gpus(2)) as machine:
        for run_id in (first, second):
            machine_fleet.wait_until_published(run_id, seconds=120)
        machine.wait(timeout=60)

    assert machine.returncode == 0
    assert len(manifest_lines(tmp_path / "out-one")) == 8
    assert len(manifest_lines(tmp_path / "out-two")) == 2
    assert "has stopped serving" in log_of(machine_fleet)
    assert "The fleet has had nothing to do here for 10 s: stopping" in log_of(machine_fleet)


def test_a_machine_that_has_nothing_to_do_ends_and_runs_a_command(machine_fleet: Fleet, tmp_path: Path) -> None:
    with machine_fleet.machine("--exit-when-idle", "1s", "--on-idle", f"touch '{tmp_path}/powered off'") as machine:
        machine.wait(timeout=20)

    assert machine.returncode == 0
    assert (tmp_path / "powered off").exists()
    assert " starts with " not in log_of(machine_fleet)  # no run needs a worker, and none is named
    assert "No open run needs more workers here: waiting" in log_of(machine_fleet)


@pytest.mark.faults
def test_an_idle_machine_is_seen(machine_fleet: Fleet, enqueue: Callable[..., str]) -> None:
    with machine_fleet.machine(environment=gpus(2)) as machine:
        wait_until(lambda: list_machines(machine_fleet.ledger.redis), description="it is announced")
        idle = machine_fleet.call_producer("runs").stderr
        run_id = enqueue("model")
        queued = machine_fleet.call_producer("status", run_id).stdout
        machine.terminate()
        machine.wait(timeout=STOP_SECONDS)

    name = f"{socket.gethostname()}/{machine.pid}"
    assert f"0 workers; 1 machine, free: {name}" in idle
    assert f"A worker of {name} is free for this run, and not started yet." in " ".join(queued.split())
    assert list_machines(machine_fleet.ledger.redis) == []


@pytest.mark.faults
def test_a_machine_of_a_named_model_leaves_other_runs_alone_and_takes_any_dtype(
    machine_fleet: Fleet, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    other, own = enqueue("other"), enqueue("own", "--limit-rows", "24", "--dtype", "float32")

    with machine_fleet.finalizer(), machine_fleet.machine("--model", tmp_path / "own", environment=gpus(1)):
        machine_fleet.wait_until_published(own)
        wait_until(lambda: workers(machine_fleet, "ready"), description="it waits")

    assert machine_fleet.ledger.counts(other).queued == 8
    assert "worker start" in machine_fleet.call_producer("status", other).stdout


@pytest.mark.faults
def test_a_worker_that_dies_again_and_again_soon_after_it_was_ready_is_started_after_a_second_each_time(
    machine_fleet: Fleet, enqueue: Callable[..., str]
) -> None:
    enqueue("model")

    with machine_fleet.machine(environment=gpus(1)):
        for number in range(1, 7):  # one more than a worker may be started without once being ready
            wait_until(
                lambda times=number: log_of(machine_fleet).count(" is ready.") == times,
                description="it is ready",
                seconds=30,
            )
            os.killpg(int(re.findall(r"\(process (\d+)\)", log_of(machine_fleet))[-1]), signal.SIGKILL)
        wait_until(lambda: log_of(machine_fleet).count("has ended") == 6, description="the last death is noted")
        log = log_of(machine_fleet)

    assert log.count("It starts again in 1 s") == 6
    assert "cannot serve" not in log


@pytest.mark.faults
def test_a_machine_that_cannot_serve_says_why_and_does_not_end_as_if_idle(
    machine_fleet: Fleet, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    enqueue("model")
    (tmp_path / "model/config.json").unlink()

    with machine_fleet.machine("--exit-when-idle", "1s", environment=gpus(1)) as machine:
        machine.wait(timeout=120)

    assert machine.returncode == 2
    assert log_of(machine_fleet).rstrip().endswith("8 shards wait, and no worker here could serve them")
    (line,) = [line for line in log_of(machine_fleet).splitlines() if "cannot serve" in line]
    assert str(tmp_path / "model") in line.partition("cannot serve")[2].partition(": ")[2]


def test_a_model_that_is_not_there_ends_the_command_before_a_worker_starts(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.machine("--model", tmp_path / "nothing") as machine:
        machine.wait(timeout=60)

    assert machine.returncode == 2
    assert "There is no model" in log_of(fleet)
