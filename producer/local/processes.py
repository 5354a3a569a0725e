"""Start and stop the processes of a local run, so that nothing is left behind however the parent ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import UsageError
from fleet.parent_death import end_with_parent

Child = subprocess.Popen[bytes]


@contextmanager
def running(
    command: list[str], *, log: Path, stop_seconds: float, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """A process that lives as long as the block: SIGTERM at its end, SIGKILL to its whole group if that does not help.

    It has a session of its own, so that Ctrl-C reaches the parent alone, which then stops its children cleanly.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    parent = os.getpid()
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: _end_with(parent),
        )
    try:
        yield child
    finally:
        _stop(child, stop_seconds)


def terminate(*children: Child) -> None:
    """Tell all of them to stop before the first is waited for: each takes seconds."""
    for child in children:
        if child.poll() is None:
            child.terminate()


@contextmanager
def vanishing_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder, open to this user alone, that is gone after the block, and soon after this process, however it ends.

    A shell makes it and waits at a pipe that closes with this process: a process that is killed cannot clean up itself.
    """
    folder = Path(tempfile.gettempdir(), prefix + os.urandom(4).hex())
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, "sh", str(folder)],
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert keeper.stdin
    assert keeper.stdout
    try:
        if not keeper.stdout.readline():
            raise UsageError(f"The folder {folder} could not be made. Name another place for it by TMPDIR.")
        yield folder
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


# Signals and a closed standard output must not end it before it has removed the folder.
_KEEPER = """trap '' PIPE HUP INT TERM; mkdir -m 700 "$1" || exit; echo made 2>&-; read -r _; rm -rf "$1" """


def _end_with(parent: int) -> None:
    """Between fork and exec: SIGTERM when the parent is gone. Elsewhere than on Linux no thread would outlive the exec."""
    if sys.platform == "linux":
        end_with_parent(parent, signal.SIGTERM)


def _stop(child: Child, seconds: float) -> None:
    terminate(child)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
