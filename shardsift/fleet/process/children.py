"""Start and stop child processes. None is left behind, even if the parent is killed."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import IO, Any, NoReturn

from shardsift.fleet.errors import UsageError

Child = subprocess.Popen[bytes]
_FIRST_PAUSE_SECONDS = 1.0  # before a process is restarted; doubles each time
_LONGEST_PAUSE_SECONDS = 60.0
# Does the same as `end_with_parent`, then execs another program. A preexec_fn would hang in Python 3.11 if a thread of
# Arrow or another library entered Python between fork and exec.
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
    command: list[str],
    *,
    log: Path,
    stop_seconds: float,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Iterator[Child]:
    """Run a process during a block, and append its output to `log`.

    After the block it gets SIGTERM, and SIGKILL if it does not exit within `stop_seconds`.
    """
    child = _logging_to(log, command, environment=environment, pass_fds=pass_fds)
    try:
        yield child
    finally:
        stop(child, stop_seconds)


def _logging_to(log: Path, command: list[str], **how: Any) -> Child:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return start_process(command, output=output, **how)


def start_process(
    command: list[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a process in its own session. Without `output`, it writes to this process's stdout and stderr.

    On Linux it gets SIGTERM when this process ends. Ctrl-C reaches only this process, which then stops its children
    cleanly.
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
        pass_fds=pass_fds,
    )


def stop(child: Child, seconds: float) -> None:
    """Send SIGTERM to a process. If it does not exit within `seconds`, send SIGKILL to its process group."""
    child.terminate()  # does nothing if it has ended
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        kill(child)
        child.wait()


def kill(child: Child) -> None:
    """Send SIGKILL to a process and its group. Does nothing if it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class Kept:
    """A process that is started again when it ends, unless it exits with an error.

    Call `tend` regularly, in the thread that created the object.
    """

    def __init__(self, name: str, command: list[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = log
        self._start = partial(_logging_to, log, command, environment=environment)
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self.process = self._start()
        self._started_at = time.monotonic()

    def tend(self) -> str:
        """Restart the process if a signal ended it or it exited with 0. Returns a message about the restart.

        The message is empty if there was no restart. Raises UsageError if the process exited with an error.
        """
        code = self.process.poll()
        lived = time.monotonic() - self._started_at
        if code is None or lived < self._pause_seconds:
            return ""
        if code > 0:
            last_line = self._log.read_text(errors="replace").rstrip().rpartition("\n")[2]
            raise UsageError(
                f"{self.name}: ended with exit code {code}. Last line of the log: {last_line} (The whole log: {self._log})"
            )
        again = 2 * self._pause_seconds if lived < _LONGEST_PAUSE_SECONDS else _FIRST_PAUSE_SECONDS
        self._pause_seconds = min(again, _LONGEST_PAUSE_SECONDS)
        self.process, self._started_at = self._start(), time.monotonic()
        return f"{self.name}: ended by {signal.Signals(-code or signal.SIGTERM).name}, and started again."


# End a process when its parent ends, even by SIGKILL. On Linux the kernel does this, elsewhere a thread.

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 1.0


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Make this process get the signal `number` when its parent ends. Sends it at once if the parent has already ended.

    `parent` is the pid that the parent passed on. `os.getppid()` would be wrong if the parent died before this call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    else:
        threading.Thread(target=_signal_when_orphaned, args=(parent, number), name="parent's end", daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _signal_when_orphaned(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), number)


def end_process(code: int) -> NoReturn:
    """Run the atexit functions, then exit without tearing down modules.

    Daemon threads still use the modules, and DuckDB would report leaks on stderr.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def handling(*numbers: signal.Signals, by: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle these signals with `by` during a block.

    Does nothing outside the main thread, which alone may set handlers.
    """
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
    """Hide the main module, so that processes spawned in the block do not run the user's script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
