"""`producer run` is killed, or one of its processes is: it leaves nothing behind, and it goes on."""

import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from shardsift.fleet.process.children import Child
from support.disturbed_runs import WINDOW_ROWS
from support.injected_faults import STAND_IN, InjectedFaults
from support.leftovers import processes_with
from support.outputs import data_digests
from support.processes import run_command, started
from support.waiting import wait_until

SECONDS = 60
MOMENTS = 10
KINDS = (
    "shardsift finalizer",
    "worker start",
    "worker serve",
    "billiard.spawn",  # owns the model
    "semaphore_tracker",
    "local.keeper",
    "-server",  # Redis or Valkey
)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for the run's temporary folders. Its path is short, because a socket's path may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


@contextmanager
def a_run(
    shards: Path, model: Path, faults: InjectedFaults, folder: Path, temporary: Path, *more: str, **settings: str
) -> Iterator[Child]:
    with started(
        *command(shards, model, folder, *more),
        environment=environment(faults, folder, temporary) | settings,
        log=folder / "run.log",
    ) as run:
        yield run


def command(shards: Path, model: Path, folder: Path, *more: str) -> Sequence[str | Path]:
    arguments = ("run", "--input", shards, "--model", model, "--output", folder / "out", "--dtype", "float32")
    return ("producer", *arguments, "--scorer", STAND_IN, *more)


def environment(faults: InjectedFaults, folder: Path, temporary: Path) -> dict[str, str]:
    return {
        **faults.environment,
        "REDIS_URL": "",
        "SHARDSIFT_STATE_DIR": str(folder / "state"),
        "SHARDSIFT_LEASE_SECONDS": "2",
        "TMPDIR": str(temporary),
        "HF_HUB_OFFLINE": "1",
    }


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


def of_kind(kind: str, faults: InjectedFaults, temporary: Path) -> list[psutil.Process]:
    """The processes of a run of this kind. A server writes its title, with its socket's path, over its environment."""
    found = {*processes_with(faults), *(one for one in psutil.process_iter() if str(temporary) in line_of(one))}
    return [process for process in found if kind_of(process) == kind]


def kind_of(process: psutil.Process) -> str:
    """The program of a process: each kind has a part of its command line of its own."""
    return next((kind for kind in KINDS if kind in line_of(process)), "")


def line_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.faults
def test_a_run_goes_on_after_any_of_its_processes_was_killed(
    small_shards: Path,
    tiny_model: Path,
    faults: InjectedFaults,
    tmp_path: Path,
    temporary: Path,
    undisturbed: dict[str, str],
) -> None:
    faults.window_rows = WINDOW_ROWS
    faults.use_stand_in(seconds_a_batch=1.5)

    with a_run(small_shards, tiny_model, faults, tmp_path, temporary, "--workers", "1") as run:
        for kind in KINDS:
            scored = faults.rows_scored()
            wait_until(lambda scored=scored: faults.rows_scored() > scored, description=f"it scores before {kind}")
            for process in wait_until(partial(of_kind, kind, faults, temporary), description=f"there is a {kind}"):
                process.kill()
        assert run.wait(timeout=120) == 0, (tmp_path / "run.log").read_text()

    assert data_digests(tmp_path / "out") == undisturbed
    check_nothing_stays(faults, temporary)


@pytest.mark.faults
def test_a_run_goes_on_after_another_one_beside_it_has_ended_or_was_killed(
    small_shards: Path,
    tiny_model: Path,
    faults: InjectedFaults,
    tmp_path: Path,
    temporary: Path,
    undisturbed: dict[str, str],
) -> None:
    """The first one has started the Redis of both."""
    faults.window_rows = WINDOW_ROWS
    faults.use_stand_in(seconds_a_batch=1)
    state = {"SHARDSIFT_STATE_DIR": str(tmp_path / "state")}
    names = ("ended", "killed", "going-on")

    with ExitStack() as stack:
        ended, killed, going_on = (
            stack.enter_context(
                a_run(small_shards, tiny_model, faults, tmp_path / name, temporary, "--workers", "1", **state)
            )
            for name in names
        )
        logs = tmp_path / "state/logs"
        wait_until(
            lambda: len([*logs.glob("*/workers.log")]) == len(names), description="all are enqueued", seconds=120
        )
        wait_until(faults.rows_scored, description="a worker scores", seconds=120)
        refused = run_command(
            *command(small_shards, tiny_model, tmp_path / "going-on", "--keep-all"),
            environment=environment(faults, tmp_path / "going-on", temporary) | state,
        )
        ended.send_signal(signal.SIGINT)
        assert ended.wait(timeout=60) == 130
        killed.kill()
        assert going_on.wait(timeout=120) == 0, (tmp_path / "going-on/run.log").read_text()

    assert refused.returncode == 2
    assert "Another `producer run` on this machine publishes to" in refused.stderr
    assert data_digests(tmp_path / "going-on/out") == undisturbed
    check_nothing_stays(faults, temporary)
