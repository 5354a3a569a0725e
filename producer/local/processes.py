"""Start and stop the processes of a local run, so that none is left behind however the parent ends."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
Child = subprocess.Popen[bytes]


@contextmanager
def running(
    command: list[str], *, log: Path, stop_seconds: float, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """A process that lives as long as the block: SIGTERM at its end, SIGKILL to its whole group if that does not help.

    It has a session of its own, so that Ctrl-C reaches the parent alone, which then stops its children in good order.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        yield child
    finally:
        _stop(child, stop_seconds)


def _die_with_parent() -> None:
    """Have the kernel send this child SIGTERM when its parent is gone, however that ended. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(child: Child, seconds: float) -> None:
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
