"""End a process in which nothing advances, even where a hung device keeps Python from running.

The timer is `faulthandler`'s: a thread in C, that needs no lock of Python's. It writes where every thread hangs, then exits.
"""

import faulthandler
import time
from typing import IO

_PETS_APART_SECONDS = 1.0  # setting the timer anew costs a thread


class Watchdog:
    """Ends the process when `pet` was not called for `stall_seconds` between `start` and `stop`."""

    def __init__(self, stall_seconds: float, report: IO[str]) -> None:
        """`report` is a real file, for the traces of all threads."""
        self._stall_seconds = stall_seconds
        self._report = report
        self._petted = time.monotonic()

    @property
    def has_stalled(self) -> bool:
        return time.monotonic() - self._petted > self._stall_seconds

    def start(self) -> None:
        self._arm()

    def pet(self) -> None:
        if time.monotonic() - self._petted > min(_PETS_APART_SECONDS, self._stall_seconds / 4):
            self._arm()

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        self._petted = time.monotonic()
        faulthandler.dump_traceback_later(self._stall_seconds, exit=True, file=self._report)
