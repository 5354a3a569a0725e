"""What a worker says of its device while it has a shard: its share of the matmul peak, its memory, how busy it is."""

from collections.abc import Sequence
from typing import Any

from fleet.flops import shape_of
from worker.scoring import DeviceUse, MeteredScorer, Scorer


def metered(scorer: Scorer[Any]) -> Scorer[Any]:
    """The same scorer, which counts its work from now on if its model is one whose operations are known."""
    return scorer.metered(shape_of(scorer.config)) if isinstance(scorer, MeteredScorer) else scorer


class DeviceMeter:
    """Measures from now on. `scorers` are those of one attempt, which all run on the device called `name`."""

    def __init__(self, name: str, scorers: Sequence[Scorer[Any]]) -> None:
        self.name = name
        self._metered = [scorer for scorer in scorers if isinstance(scorer, MeteredScorer)]
        self._counts_all = len(self._metered) == len(scorers)
        self._before = self._seconds_at_peak()

    def peak_share(self, device_seconds: float) -> float | None:
        """The share of these seconds that the work would have taken at the matmul peak. None if that is not known.

        At most 1: what a device has done it can do, so a share above means that other work slowed the measurement of the peak.
        """
        before, now = self._before, self._seconds_at_peak()
        if before is None or now is None or now == before or device_seconds <= 0:
            return None
        return min(1.0, (now - before) / device_seconds)

    def use(self) -> DeviceUse:
        return self._metered[0].device_use() if self._metered else DeviceUse()

    def _seconds_at_peak(self) -> float | None:
        found = [scorer.seconds_at_peak for scorer in self._metered]
        known = [seconds for seconds in found if seconds is not None]
        return sum(known) if self._counts_all and len(known) == len(found) else None
