"""The scripts of ops/ for Slurm and Hugging Face Jobs, run as their platform runs them, work for the fleet and stop in time.

The machine has two stand-in GPUs. Slurm's commands are stand-ins too.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from shardsift.fleet.presence.announcements import list_workers
from shardsift.fleet.process.children import Child, running
from support.compose import BIN
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.machine_files import HF_JOB_SCRIPT, SLURM_SCRIPT
from support.nvidia_smi import install_nvidia_smi
from support.outputs import manifest_lines

pytestmark = pytest.mark.faults
GPUS = 2
STOP_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Platform:
    """How a platform starts the command, and which process it sends SIGTERM to."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    signalled: Callable[[Child], psutil.Process] = lambda child: psutil.Process(child.pid)


def hugging_face_jobs(home: Path) -> Platform:
    return Platform(command=[sys.executable, str(HF_JOB_SCRIPT)])


def slurm(home: Path) -> Platform:
    for name, does in {
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        "scontrol": f'echo "$@" >> "{home}/scontrol"',
    }.items():
        write_tool(home / "bin" / name, does)
    (home / "worker.env").write_text("SHARDSIFT_LEASE_SECONDS=3\n")
    variables = {
        "SHARDSIFT_ENV": str(home / "worker.env"),
        "SHARDSIFT_VENV": str(BIN.parent),
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_ID": "42",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    # --signal without B: reaches the step, and not the shell of the script.
    step = lambda child: psutil.Process(child.pid).children()[0]  # noqa: E731
    return Platform(command=["bash", str(SLURM_SCRIPT)], environment=variables, signalled=step)


def write_tool(path: Path, does: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{does}\n")
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def machine_fleet(fleet: Fleet, faults: InjectedFaults, home: Path) -> Iterator[Fleet]:
    """A fleet whose machines have two GPUs."""
    faults.use_stand_in(rows_a_batch=2, seconds_a_batch=0.1)
    faults.set_device("cuda")  # each template asks for it, so that no machine scores on its CPU
    install_nvidia_smi(home / "bin", gpus=GPUS)
    fleet.environment |= faults.environment | {
        "PATH": os.pathsep.join((str(home / "bin"), str(BIN), os.environ["PATH"])),
        "HOME": str(home),
        "LOKY_MAX_CPU_COUNT": "2",
    }
    return fleet


@contextmanager
def machine_of(platform: Platform, fleet: Fleet) -> Iterator[Child]:
    environment = {**fleet.environment, **platform.environment}
    with running(platform.command, log=fleet.log("machine"), stop_seconds=0, environment=environment) as machine:
        yield machine


@pytest.mark.parametrize("way", [hugging_face_jobs, slurm], ids=lambda way: str(way.__name__))
def test_the_script_publishes_a_run_and_stops_in_time(
    way: Callable[[Path], Platform], machine_fleet: Fleet, home: Path, shards: Path, tmp_path: Path
) -> None:
    fleet, platform = machine_fleet, way(home)
    run_id = fleet.enqueue_stand_in(shards, tmp_path, "model")

    with fleet.finalizer(), machine_of(platform, fleet) as machine:
        fleet.wait_until_published(run_id)
        names = {worker.name.split("@")[0] for worker in list_workers(fleet.ledger.redis)}

        told = time.monotonic()
        platform.signalled(machine).send_signal(signal.SIGTERM)
        machine.wait(timeout=STOP_SECONDS)
        seconds = time.monotonic() - told

    assert names == {"gpu0", "gpu1"}
    assert len(manifest_lines(tmp_path / "out-model")) == 8
    assert machine.returncode == 0, fleet.log("machine").read_text()
    assert seconds < STOP_SECONDS
    assert list_workers(fleet.ledger.redis) == []
    if way is slurm:
        assert (home / "scontrol").read_text() == "requeue 42\n"


@pytest.mark.parametrize(("lease", "exit_code"), [("3", 0), ("soon", 2)], ids=["idle", "a wrong setting"])
def test_a_slurm_job_that_ends_by_itself_does_not_come_back(
    lease: str, exit_code: int, machine_fleet: Fleet, home: Path
) -> None:
    platform, script = slurm(home), home / "worker.sh"
    script.write_text(SLURM_SCRIPT.read_text().replace("--exit-when-idle 10m", "--exit-when-idle 1s"))
    (home / "worker.env").write_text(f"SHARDSIFT_LEASE_SECONDS={lease}\n")

    with machine_of(replace(platform, command=["bash", str(script)]), machine_fleet) as job:
        job.wait(timeout=60)

    assert job.returncode == exit_code, machine_fleet.log("machine").read_text()
    assert not (home / "scontrol").exists()
