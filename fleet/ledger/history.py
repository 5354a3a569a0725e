"""What a run was doing over time, from the points that `lua/prelude.lua` notes: at most 300, however long the run is."""

from collections.abc import Mapping
from dataclasses import dataclass

_WIDTH = "width_ms"


@dataclass(frozen=True, kw_only=True)
class HistoryPoint:
    """A stretch of time in which workers had shards: the rows scored in it, and the shards by state at its end.

    `at_seconds` is when it begins, since the first shard was started.
    """

    at_seconds: float
    seconds: float
    rows: int
    done: int
    failed: int
    running: int

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def read_history(fields: Mapping[str, str]) -> list[HistoryPoint]:
    """Oldest first. Stretches in which no worker had a shard are left out."""
    width = int(fields.get(_WIDTH, 0)) / 1000
    points = sorted((int(number), said) for number, said in fields.items() if number != _WIDTH)
    return [_point(number, width, *map(int, said.split(":"))) for number, said in points]


def _point(number: int, width: float, rows: int, done: int, failed: int, running: int) -> HistoryPoint:
    return HistoryPoint(at_seconds=number * width, seconds=width, rows=rows, done=done, failed=failed, running=running)
