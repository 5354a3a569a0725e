"""End a process when its parent ends for any reason, even SIGKILL. On Linux the kernel does this, elsewhere a thread."""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 1.0


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Send this process the signal `number` when `parent` ends, or now if it already has.

    `parent` is the pid as the parent recorded it. `os.getppid()` would be wrong if the parent died before this call.
    On Linux, this may be called between fork and exec.
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
