"""End a process when the one that started it is gone, however that ended. The kernel sees to it on Linux, a thread elsewhere."""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 1.0


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have this process sent the signal `number` when `parent` ends, or now if it has.

    `parent` is the pid that the parent itself has written down: by the time of this call another may have taken its place.
    May be called between fork and exec, on Linux.
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
