"""Work that was repeated: which attempt lost it, and to which fault. Pure functions of a storm's logs."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.events import Event
from chaos.recovery import Recovery


@dataclass(frozen=True, kw_only=True)
class Work:
    """`scored` is the number of rows that went through the scorer. `redone` of them did so before, in the same run.

    `lost_rows` maps the token of an attempt to its rows that a later attempt scored again.
    """

    scored: int
    redone: int
    lost_rows: Counter[str]

    @property
    def redone_share(self) -> float:
        return self.redone / self.scored if self.scored else 0.0

    def lost_to(self, recoveries: Sequence[Recovery]) -> list[tuple[Recovery, int]]:
        return [(recovery, self.lost_rows[recovery.token]) for recovery in recoveries if recovery.token]


def work(work_log: Path, events: Sequence[Event]) -> Work:
    """The work of a storm. A batch belongs to the latest claim of its process."""
    claims = defaultdict(list)
    for event in events:
        if event.what == "claim":
            claims[event.pid].append(event)
    moments = {pid: [claim.at for claim in found] for pid, found in claims.items()}
    last_scored_by: dict[tuple[str, str, str], str] = {}  # run, shard, checksum of a text → token
    scored = redone = 0
    lost: Counter[str] = Counter()
    for line in work_log.read_text().splitlines() if work_log.exists() else ():
        at, pid, rows, checksums = line.split()
        place = bisect_right(moments.get(int(pid), []), float(at)) - 1
        if place < 0:  # the process died before it recorded its claim
            continue
        claim = claims[int(pid)][place]
        scored += int(rows)
        for checksum in checksums.split(","):
            key = (claim.run, claim.shard, checksum)
            if earlier := last_scored_by.get(key):
                redone += 1
                lost[earlier] += 1
            last_scored_by[key] = claim.token
    return Work(scored=scored, redone=redone, lost_rows=lost)
