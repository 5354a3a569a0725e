"""What an attempt at a shard has done so far, and where its time went. One thread works; others may read at any time."""

import time
from collections.abc import Mapping

from fleet.attempt_report import Phase
from fleet.histogram import Histogram
from worker.shard.writer import RowCounts


class Vitals:
    """`rows_resumed` are the rows whose scores come from a checkpoint."""

    def __init__(self) -> None:
        self.rows_resumed = 0
        self.tokens = 0
        self.counts: RowCounts | None = None  # of the files that are being written
        self._spent = dict.fromkeys(Phase, 0.0)
        self._phase = Phase.INPUT
        self._since = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """The time until now was of the phase before."""
        self._spent[self._phase] += self._elapsed()
        self._phase = phase

    def waited_for_window(self, encode_seconds: float) -> None:
        """A wait for input ends now. At most this much of it was for the tokenizer, the rest for the reader."""
        waited = self._elapsed()
        tokenizing = min(waited, encode_seconds)
        self._spent[Phase.TOKENIZE] += tokenizing
        self._spent[Phase.INPUT] += waited - tokenizing

    def seconds(self) -> dict[str, float]:
        """The time of each phase up to now."""
        spent = dict(self._spent)
        spent[self._phase] += time.monotonic() - self._since
        return {phase.value: round(seconds, 3) for phase, seconds in spent.items()}

    @property
    def rows_written(self) -> int:
        return self.counts.rows_in if self.counts else 0

    @property
    def rows_kept(self) -> int:
        return self.counts.rows_kept if self.counts else 0

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        return dict(self.counts.histograms) if self.counts else {}

    def _elapsed(self) -> float:
        """Since the last call."""
        now = time.monotonic()
        elapsed, self._since = now - self._since, now
        return elapsed
