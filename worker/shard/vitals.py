"""The progress of an attempt at a shard, and where its time went. One thread works; others may read at any time."""

import math
import time

from shardsift.fleet.run.receipt import Phase
from shardsift.worker.shard.writer import RowCounts


class Vitals:
    """The progress of an attempt. `rows_resumed` are the rows whose scores come from a checkpoint."""

    def __init__(self) -> None:
        self.rows_resumed = 0
        self.tokens = 0
        self.counts = RowCounts()  # of the files that are being written
        self._spent = dict.fromkeys(Phase, 0.0)
        self._phase = Phase.INPUT
        self._since = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """Begin a phase. The time until now belongs to the phase before."""
        self._spent[self._phase] += self._elapsed()
        self._phase = phase

    def waited(self, phase: Phase, most_seconds: float, *, rest: Phase) -> None:
        """End a wait. At most `most_seconds` of it count for `phase`, and the others for `rest`."""
        waited = self._elapsed()
        of_phase = min(waited, most_seconds)
        self._spent[phase] += of_phase
        self._spent[rest] += waited - of_phase

    def seconds(self) -> dict[str, float]:
        """The time of each phase up to now."""
        spent = dict(self._spent)
        spent[self._phase] += time.monotonic() - self._since
        return {phase.value: round(seconds, 3) for phase, seconds in spent.items()}

    def _elapsed(self) -> float:
        now = time.monotonic()
        elapsed, self._since = now - self._since, now
        return elapsed


# The interface between the work on a shard and the process that holds the shard.


class WindowPace:
    """The pace of a process, known from its earlier shards. It matters for shards of one or two windows."""

    window_seconds = math.inf  # of the last window


class Progress:
    """Receives the progress of the work, and says whether to continue. By itself it never interrupts the work."""

    def __init__(self, pace: WindowPace | None = None) -> None:
        self.pace = pace or WindowPace()
        self.vitals = Vitals()  # where the work notes what it has done

    def on_batch(self, rows_of_window: int) -> bool:
        """Note the rows of this window that are scored. Returns False if the work must stop after this batch."""
        return True

    def on_window(self) -> None:
        """A window is finished. Rows that are reported from now on belong to the next one."""

    def on_launch(self) -> None:
        """A window is given to the device now."""

    def on_read(self) -> None:
        """All windows are read, and the device will soon have computed them. The next shard may begin."""

    def on_launched(self) -> None:
        """The device has been given all of the shard. The next one may begin while this one is stored."""

    def on_progress(self) -> None:
        """Note progress of another kind, such as an upload, so that the process does not seem to hang."""

    def check(self) -> None:
        """Raise LeaseLost or Stopped if the work must stop here."""
