"""The progress of an attempt at a shard, and the time of its phases. One thread writes; others may read at any time."""

import math
import time

from shardsift.fleet.run.receipt import Phase
from shardsift.worker.shard.writer import RowCounts


class Vitals:
    """The progress of an attempt. `rows_resumed` counts the rows whose scores came from a checkpoint."""

    def __init__(self) -> None:
        self.rows_resumed = 0
        self.tokens = 0
        self.counts = RowCounts()  # of the rows written so far
        self._spent = dict.fromkeys(Phase, 0.0)
        self._phase = Phase.INPUT
        self._since = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """Begin a phase. The time until now counts for the previous phase."""
        self._spent[self._phase] += self._elapsed()
        self._phase = phase

    def waited(self, phase: Phase, most_seconds: float, *, rest: Phase) -> None:
        """Count the time until now as a wait: at most `most_seconds` for `phase`, and the remainder for `rest`."""
        waited = self._elapsed()
        of_phase = min(waited, most_seconds)
        self._spent[phase] += of_phase
        self._spent[rest] += waited - of_phase

    def seconds(self) -> dict[str, float]:
        spent = dict(self._spent)
        spent[self._phase] += time.monotonic() - self._since
        return {phase.value: round(seconds, 3) for phase, seconds in spent.items()}

    def _elapsed(self) -> float:
        now = time.monotonic()
        elapsed, self._since = now - self._since, now
        return elapsed


# The interface between the work on a shard and the process that holds it.


class WindowPace:
    """The time that a process needs for a window.

    Kept between shards, because a shard of one or two windows is read before its own first window is timed.
    """

    window_seconds = math.inf  # of the last window


class Progress:
    """Receives the progress of the work, and says whether to continue. This base class never interrupts the work."""

    def __init__(self, pace: WindowPace | None = None) -> None:
        self.pace = pace or WindowPace()
        self.vitals = Vitals()  # updated by the work

    def on_batch(self, rows_of_window: int) -> bool:
        """Note how many rows of this window are scored so far. Returns False if the work must stop after this batch."""
        return True

    def on_window(self) -> None:
        """Note that a window is finished. Rows that are reported after this belong to the next window."""

    def on_launch(self) -> None:
        """Note that a window is given to the device."""

    def on_read(self) -> None:
        """Note that all windows are read and will be computed within seconds, so that the next shard may begin."""

    def on_launched(self) -> None:
        """Note that all windows are given to the device, so that the next shard may begin while this one is stored."""

    def on_progress(self) -> None:
        """Note other progress, such as of an upload, so that the process does not seem to hang."""

    def check(self) -> None:
        """Raise LeaseLost or Stopped if the work must stop here."""
