"""The events that the processes of the fleet recorded (`tests/inject/noted.py`), and the work that was done twice."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of one process. `what` is claim, complete, release, due, publishing, publish or loaded."""

    at: float  # Unix seconds
    what: str
    pid: int
    parent: int  # its parent process
    run: str = ""
    shard: str = ""
    token: str = ""


class EventLog:
    """The events so far. Call `news` to read new ones."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.events: list[Event] = []

    def news(self) -> list[Event]:
        fresh = [Event(**json.loads(line)) for line in self._lines()]
        self.events += fresh
        return fresh

    def close(self) -> None:
        self._file.close()

    def _lines(self) -> Iterator[bytes]:
        while content := self._file.read(_CHUNK_BYTES):
            *lines, self._rest = (self._rest + content).split(b"\n")
            yield from lines


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a storm, in rows. `scored` counts rows that were scored, `redone` those that the same run had scored before."""

    scored: int
    redone: int


def work(work_log: Path, events: Sequence[Event]) -> Work:
    """Count the scored rows, and those scored again in the same run. A batch belongs to the latest claim of its process."""
    claims = defaultdict(list)
    for event in events:
        if event.what == "claim":
            claims[event.pid].append(event)
    moments = {pid: [claim.at for claim in found] for pid, found in claims.items()}
    seen: set[tuple[str, str, str]] = set()  # run, shard, checksum of a text
    scored = redone = 0
    for line in work_log.read_text().splitlines() if work_log.exists() else ():
        at, pid, rows, checksums = line.split()
        number = bisect_right(moments.get(int(pid), []), float(at)) - 1
        if number < 0:  # the process died before it recorded its claim
            continue
        claim = claims[int(pid)][number]
        scored += int(rows)
        for checksum in checksums.split(","):
            key = (claim.run, claim.shard, checksum)
            redone += key in seen
            seen.add(key)
    return Work(scored=scored, redone=redone)
