"""`producer run` is killed at any moment and leaves nothing behind. Storms kill its other processes."""

import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from shardsift.fleet.process.children import Child
from support.injected_faults import STAND_IN, InjectedFaults
from support.leftovers import processes_with
from support.processes import run_command, started
from support.waiting import wait_until

SECONDS = 60
MOMENTS = 10


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for the run's temporary folders. Its path is short, because a socket's path may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def command(shards: Path, model: Path, folder: Path) -> Sequence[str | Path]:
    arguments = ("run", "--input", shards, "--model", model, "--output", folder / "out", "--dtype", "float32")
    return ("producer", *arguments, "--scorer", STAND_IN)


def environment(faults: InjectedFaults, folder: Path, temporary: Path) -> dict[str, str]:
    return {
        **faults.environment,
        "REDIS_URL": "",
        "SHARDSIFT_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(temporary),
        "HF_HUB_OFFLINE": "1",
    }


def check_nothing_stays(faults: InjectedFaults, temporary: Path) -> None:
    wait_until(lambda: not processes_with(faults.folder), description="no process is left", seconds=SECONDS)
    wait_until(
        lambda: not list(temporary.glob("shardsift-redis-*")), description="the socket's folder is gone", seconds=5
    )


@pytest.mark.faults
def test_a_run_killed_at_any_moment_leaves_no_process_and_no_socket_behind_and_no_other_has_its_output_meanwhile(
    small_shards: Path, tiny_model: Path, faults: InjectedFaults, tmp_path: Path, temporary: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=1)

    def a_run(name: str) -> AbstractContextManager[Child]:
        folder = tmp_path / name
        job = command(small_shards, tiny_model, folder)
        return started(*job, environment=environment(faults, folder, temporary), log=folder / "run.log")

    began = time.monotonic()
    with a_run("measured") as run:
        wait_until(faults.rows_scored, description="a worker scores")
        whole = time.monotonic() - began
        beside = run_command(
            *command(small_shards, tiny_model, tmp_path / "measured"),
            environment=environment(faults, tmp_path / "measured", temporary),
        )
        run.send_signal(signal.SIGKILL)
        check_nothing_stays(faults, temporary)

    for moment in range(MOMENTS):
        with a_run(str(moment)) as run:
            due = time.monotonic() + whole * moment / MOMENTS
            wait_until(lambda due=due: time.monotonic() >= due, description="the moment")
            run.send_signal(signal.SIGKILL)
            check_nothing_stays(faults, temporary)

    assert beside.returncode == 2
    assert "Another `producer run` on this machine publishes to" in beside.stderr
