"""How fast a run goes, from what `lua/prelude.lua` notes of it: the rows scored in each of the last slots of ten seconds.

Only slots in which a worker had a shard count, so that a run that waited for workers was not slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_SLOT_MS = 10_000  # as in lua/prelude.lua
_SLOTS = 30


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Rows scored and the seconds in which workers had shards: in the last five minutes, and in all.

    A row that was scored again after a crash, or whose receipt was taken over, counts once or not at all.
    """

    rows_lately: int = 0
    seconds_lately: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    idle_seconds: float | None = None  # since a row was last scored; None: none was

    @property
    def rows_per_second_lately(self) -> float:
        return self.rows_lately / self.seconds_lately if self.seconds_lately else 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def read_pace(run: Mapping[str, str], *, now_ms: int, end_ms: int) -> Pace:
    """From the run's hash. `end_ms` is now, or when the last shard ended."""
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
    """Rows by slot."""
    noted = (run[field].split(":") for field in run if field.startswith("pace:"))
    return {int(slot): int(rows) for slot, rows in noted if int(slot) > oldest}


def _seconds_of(slot: int, begin_ms: int, end_ms: int) -> float:
    """How much of the slot lies within the run."""
    return max(0, min((slot + 1) * _SLOT_MS, end_ms) - max(slot * _SLOT_MS, begin_ms)) / 1000
