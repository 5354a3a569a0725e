"""`producer run` is killed and cannot clean up: within a minute, none of its processes and folders is left."""

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardsift.fleet.process.children import Child
from support.injected_faults import STAND_IN, InjectedFaults
from support.leftovers import processes_with
from support.processes import started
from support.waiting import wait_until

SECONDS = 60
MOMENTS = 10


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for the run's temporary folders. Its path is short, because a socket's path may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


@contextmanager
def a_run(shards: Path, model: Path, faults: InjectedFaults, folder: Path, temporary: Path) -> Iterator[Child]:
    arguments = ("run", "--input", shards, "--model", model, "--output", folder / "out", "--dtype", "float32")
    arguments += ("--scorer", STAND_IN)
    environment = {
        **faults.environment,
        "SHARDSIFT_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(temporary),
        "HF_HUB_OFFLINE": "1",
    }
    with started("producer", *arguments, environment=environment, log=folder / "run.log") as run:
        yield run


def check_nothing_stays(faults: InjectedFaults, temporary: Path) -> None:
    wait_until(lambda: not processes_with(faults), description="no process is left", seconds=SECONDS)
    wait_until(
        lambda: not list(temporary.glob("shardsift-redis-*")), description="the socket's folder is gone", seconds=5
    )


@pytest.mark.faults
def test_a_run_killed_at_any_moment_leaves_no_process_and_no_socket_behind(
    small_shards: Path, tiny_model: Path, faults: InjectedFaults, tmp_path: Path, temporary: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=1)
    began = time.monotonic()
    with a_run(small_shards, tiny_model, faults, tmp_path / "measured", temporary) as run:
        wait_until(faults.rows_scored, description="a worker scores")
        whole = time.monotonic() - began
        run.send_signal(signal.SIGKILL)
        check_nothing_stays(faults, temporary)

    for moment in range(MOMENTS):
        with a_run(small_shards, tiny_model, faults, tmp_path / str(moment), temporary) as run:
            due = time.monotonic() + whole * moment / MOMENTS
            wait_until(lambda due=due: time.monotonic() >= due, description="the moment")
            run.send_signal(signal.SIGKILL)
            check_nothing_stays(faults, temporary)
