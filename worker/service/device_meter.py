"""Measure how much of its device an attempt uses, and the share of the matmul peak that it reaches."""

from collections.abc import Sequence
from typing import Any

from shardsift.fleet.run.flops import shape_of
from shardsift.worker.scoring import DeviceUse, MeteredScorer, Scorer


class DeviceMeter:
    """Measures how fast an attempt computes from `start` to `stop`, as a share of the matmul peak.

    The matmul peak is the measured speed at which the device multiplies matrices of the model's shapes. `scorers`
    belong to one attempt, and all run on the device called `name`. `backend` names how they run batches. `use` says how
    busy the device and its memory are, with all processes.
    """

    def __init__(self, name: str, scorers: Sequence[Scorer[Any]], *, backend: str = "") -> None:
        self.name = name
        self.backend = backend
        self._metered = [scorer for scorer in scorers if isinstance(scorer, MeteredScorer)]
        self._counts_all = len(self._metered) == len(scorers)
        self._has_started = False
        self._before = self._seconds_at_peak()
        self._at_end: float | None = None

    def start(self) -> None:
        """Count work from the first call on. Earlier work on the device belongs to another attempt."""
        if not self._has_started:
            self._has_started, self._before = True, self._seconds_at_peak()

    def stop(self) -> None:
        """Stop counting. Later work on the device belongs to another attempt."""
        self._at_end = self._seconds_at_peak()

    def peak_share(self, device_seconds: float) -> float | None:
        """Return the speed of the counted work as a share of the matmul peak, or None if it is unknown.

        `device_seconds` is how long the work took. The share is capped at 1, because the measured peak is too low if
        other work ran during its measurement.
        """
        before, now = self._before, self._seconds_at_peak() if self._at_end is None else self._at_end
        if before is None or now is None or now == before or device_seconds <= 0:
            return None
        return min(1.0, (now - before) / device_seconds)

    def use(self) -> DeviceUse:
        return self._metered[0].device_use() if self._metered else DeviceUse()

    def _seconds_at_peak(self) -> float | None:
        found = [scorer.seconds_at_peak for scorer in self._metered]
        known = [seconds for seconds in found if seconds is not None]
        return sum(known) if self._counts_all and len(known) == len(found) else None


def metered(scorer: Scorer[Any]) -> Scorer[Any]:
    """Return the scorer with a counter of its matrix products, if they can be counted."""
    return scorer.metered(shape_of(scorer.config)) if isinstance(scorer, MeteredScorer) else scorer
