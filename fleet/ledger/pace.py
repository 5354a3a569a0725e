"""The speed of a run, from the rows that `lua/prelude.lua` counts in slots of ten seconds.

Only slots in which a worker held a shard count, so time spent waiting for workers does not make a run look slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_SLOT_MS = 10_000  # as in lua/prelude.lua
_SLOTS = 30


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Rows scored, and the seconds in which workers held shards: in the last five minutes, and in total.

    A row that was scored again after a crash counts once. A row of a shard that was restored from its receipt does not
    count.
    """

    rows_lately: int = 0
    seconds_lately: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    idle_seconds: float | None = None  # since a row was last scored; None before the first row

    @property
    def rows_per_second_lately(self) -> float:
        return self.rows_lately / self.seconds_lately if self.seconds_lately else 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def read_pace(run: Mapping[str, str], *, now_ms: int, end_ms: int) -> Pace:
    """Read the pace from the run's hash. `end_ms` is the time at which the last shard ended, or now."""
    if "started_ms" not in run:
        return Pace()
    begin_ms = int(run["started_ms"])
    lately = _slots_since(run, now_ms // _SLOT_MS - _SLOTS)
    advanced_ms = run.get("advanced_ms")
    return Pace(
        rows_lately=sum(lately.values()),
        seconds_lately=sum(_seconds_of(slot, begin_ms, end_ms) for slot in lately),
        rows=int(run.get("rows_scored", 0)),
        seconds=max(0.0, min((end_ms - begin_ms) / 1000, int(run.get("slots", 0)) * _SLOT_MS / 1000)),
        idle_seconds=None if advanced_ms is None else max(0.0, (now_ms - int(advanced_ms)) / 1000),
    )


def _slots_since(run: Mapping[str, str], oldest: int) -> dict[int, int]:
    """Slot → rows."""
    noted = (run[field].split(":") for field in run if field.startswith("pace:"))
    return {int(slot): int(rows) for slot, rows in noted if int(slot) > oldest}


def _seconds_of(slot: int, begin_ms: int, end_ms: int) -> float:
    """The part of the slot that lies within the run."""
    return max(0, min((slot + 1) * _SLOT_MS, end_ms) - max(slot * _SLOT_MS, begin_ms)) / 1000
