"""Start and stop child processes on this machine. Nothing is left behind, even if the parent is killed."""

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import IO, NoReturn

from shardsift.fleet.errors import UsageError

Child = subprocess.Popen[bytes]
# A shell that makes a folder, and removes it when its stdin is closed, however its parent ends. Neither a signal nor a closed
# stdout may end the shell before it has removed the folder.
_KEEPER = """trap '' PIPE HUP INT TERM; mkdir -m 700 "$1" || exit; echo made 2>&-; read -r _; rm -rf "$1" """
# The same as `end_with_parent`, then the process becomes another program. A function for between fork and exec would not do: if
# a thread of Arrow or another library enters Python at that moment, Python 3.11 hangs there.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGTERM)
for number in signal.SIGPIPE, signal.SIGXFSZ:  # which Python ignores
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def running(
    command: list[str], *, log: Path, stop_seconds: float, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run a process during the block, with its output in `log`. At the end it gets SIGTERM.

    If it does not exit in time, its group gets SIGKILL.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = start(command, environment=environment, output=output)
    try:
        yield child
    finally:
        terminate(child)
        try:
            child.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            kill(child)
            child.wait()


def start(
    command: list[str], *, environment: Mapping[str, str] | None = None, output: IO[bytes] | None = None
) -> Child:
    """Start a process that on Linux gets SIGTERM when this process ends. `output` None: it shares this process's output.

    It has its own session, so Ctrl-C reaches only the parent, which then stops its children cleanly.
    """
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def kill(child: Child) -> None:
    """Send SIGKILL to a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def terminate(*children: Child) -> None:
    """Signal all processes before waiting for the first one, because each takes seconds to stop."""
    for child in children:
        child.terminate()  # does nothing to one that has ended


@contextmanager
def vanishing_folder(prefix: str, *, within: str | None = None) -> Iterator[Path]:
    """A temporary folder that only this user can open. It is removed after the block, even if this process is killed.

    A killed process cannot clean up, so a shell creates the folder and waits on a pipe that closes with this process.
    """
    folder = Path(within or tempfile.gettempdir(), prefix + os.urandom(4).hex())
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
            raise UsageError(f"The folder {folder} could not be created. Set TMPDIR to a writable folder.")
        yield folder
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


# End a process when its parent ends for any reason, even SIGKILL. On Linux the kernel does this, elsewhere a thread.

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 1.0


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Send this process the signal `number` when `parent` ends, or now if it already has.

    `parent` is the pid as the parent recorded it. `os.getppid()` would be wrong if the parent died before this call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    else:
        threading.Thread(target=_look_for, args=(parent, number), name="parent's end", daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _look_for(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), number)


def end_process(code: int) -> NoReturn:
    """Exit without tearing modules down: daemon threads use them until the end, and DuckDB reports that as leaks on stderr."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def handling(*numbers: signal.Signals, by: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `by` for these signals during the block. Only the main thread can set handlers; in another one, this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, by) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the main module: each process that multiprocessing spawns in the block would import it and run the script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
