"""End a process whose shard makes no progress, because its device hangs."""

import faulthandler
import threading
import time
from typing import IO

_PETS_APART_SECONDS = 1.0  # between resets of the timer, because each starts a thread
_SOON_SECONDS = 0.001  # because `faulthandler` refuses 0


class Watchdog:
    """Ends the process if a shard in work makes no progress for `stall_seconds`.

    Call `start` when a shard begins, `pet` at each progress, and `stop` at its end. If one of two shards hangs, the
    process ends even if the other advances. The timer is a C thread of `faulthandler`, which runs even while a hung
    call to the device holds the interpreter lock. It writes the traces of all threads and exits.
    """

    def __init__(self, stall_seconds: float, report: IO[str]) -> None:
        """Prepare a watchdog. `report` receives the traces of all threads, and must be a real file."""
        self._stall_seconds = stall_seconds
        self._report = report
        self._petted: dict[object, float] = {}
        self._setting = threading.Lock()

    def has_stalled(self, shard: object) -> bool:
        return self.idle_seconds(shard) > self._stall_seconds

    def idle_seconds(self, shard: object) -> float:
        """Return the time since the last progress, to within a second."""
        return time.monotonic() - self._petted[shard]

    def start(self, shard: object) -> None:
        with self._setting:
            self._petted[shard] = time.monotonic()
            self._set_timer()

    def pet(self, shard: object) -> None:
        if self.idle_seconds(shard) > min(_PETS_APART_SECONDS, self._stall_seconds / 4):
            self.start(shard)

    def stop(self, shard: object) -> None:
        with self._setting:
            del self._petted[shard]
            self._set_timer()

    def _set_timer(self) -> None:
        if not self._petted:
            faulthandler.cancel_dump_traceback_later()
            return
        seconds = min(self._petted.values()) + self._stall_seconds - time.monotonic()
        faulthandler.dump_traceback_later(max(seconds, _SOON_SECONDS), exit=True, file=self._report)
