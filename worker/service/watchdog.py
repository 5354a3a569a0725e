"""End a process that makes no progress, even if a hung device keeps Python code from running.

The timer belongs to `faulthandler`: a C thread that does not need the interpreter lock. It writes the traces of all
threads and then exits.
"""

import faulthandler
import time
from typing import IO

_PETS_APART_SECONDS = 1.0  # each reset of the timer starts a thread


class Watchdog:
    """Ends the process if, between `start` and `stop`, `pet` is not called for `stall_seconds`."""

    def __init__(self, stall_seconds: float, report: IO[str]) -> None:
        """`report` must be a real file; the traces of all threads are written to it."""
        self._stall_seconds = stall_seconds
        self._report = report
        self._petted = time.monotonic()

    @property
    def has_stalled(self) -> bool:
        return self.idle_seconds > self._stall_seconds

    @property
    def idle_seconds(self) -> float:
        """Since the last progress, to within a second."""
        return time.monotonic() - self._petted

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
