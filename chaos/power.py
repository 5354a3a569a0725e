"""Simulate a power failure of Redis: the process is gone, and the disk lacks the latest writes.

With `appendfsync everysec`, the end of the file may be missing from any byte on, even in the middle of a command or a
transaction. A machine that is restored from a snapshot has data up to a minute old. Knows nothing of runs.
"""

import math
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.redis_servers import RedisServer

_OLDEST_SECONDS = 60.0
_RESTORED = 0.5  # share of failures that restore an older copy; the others cut the end of the file
_OF_THIS_RUN = 0.7
_UNFINISHED = shutil.ignore_patterns("temp-*")  # files of an unfinished rewrite


@dataclass(frozen=True, kw_only=True)
class PowerLoss:
    """The lost writes: `cut_bytes` at the end of the file, or everything since a copy of this age was made."""

    cut_bytes: int = 0
    copy_age_seconds: float = 0.0

    def __str__(self) -> str:
        return f"a copy {self.copy_age_seconds:.1f} s old" if self.copy_age_seconds else f"{self.cut_bytes} bytes cut"


class Disk:
    """The disk of a Redis. `tick` copies its data from time to time."""

    def __init__(self, server: RedisServer, copies: Path, *, copy_seconds: float = 0.2) -> None:
        self._server = server
        self._folder = copies
        self._copy_seconds = copy_seconds  # between two copies
        self._copies: list[tuple[float, Path]] = []
        self._number = 0

    def tick(self) -> None:
        """Copy the data if a copy is due. Call this often while the server runs."""
        now = time.time()
        if self._copies and now - self._copies[-1][0] < self._copy_seconds:
            return
        self._number += 1
        copy = self._folder / str(self._number)
        with self._server.frozen():
            shutil.copytree(self._server.data, copy, ignore=_UNFINISHED)
        self._copies.append((now, copy))
        while now - self._copies[0][0] > _OLDEST_SECONDS:
            shutil.rmtree(self._copies.pop(0)[1])

    @property
    def may_be_rewritten(self) -> bool:
        """Whether a rewrite is allowed. Redis 6.2 has one file, which begins with a snapshot after a rewrite.

        A cut inside the snapshot would make the file unreadable.
        """
        return (self._server.data / "appendonlydir").exists()

    def fail(self, rng: random.Random, *, began_at: float) -> PowerLoss:
        """Kill the server and remove its latest writes. The server can then be started again.

        Most restored copies are newer than `began_at`, so they contain a run that began at that time.
        """
        self._server.kill()
        return self._restore_copy(rng, began_at) if rng.random() < _RESTORED else self._cut_tail(rng)

    def _cut_tail(self, rng: random.Random) -> PowerLoss:
        """Cut the end of the file. Short and long cuts are equally likely; most end in the middle of a command."""
        file = newest_log(self._server.data)
        size = file.stat().st_size
        cut = min(size, round(math.exp(rng.uniform(0, math.log(size))))) if size else 0
        with file.open("r+b") as log:
            log.truncate(size - cut)
        return PowerLoss(cut_bytes=cut)

    def _restore_copy(self, rng: random.Random, began_at: float) -> PowerLoss:
        recent = [one for one in self._copies if one[0] >= began_at]
        taken_at, copy = rng.choice(recent if recent and rng.random() < _OF_THIS_RUN else self._copies)
        shutil.rmtree(self._server.data)
        shutil.copytree(copy, self._server.data)
        for later in [one for one in self._copies if one[0] > taken_at]:  # copies of a state that no longer exists
            shutil.rmtree(later[1])
            self._copies.remove(later)
        return PowerLoss(copy_age_seconds=time.time() - taken_at)


def newest_log(data: Path) -> Path:
    """Return the file to which Redis appends. Since Redis 7, it is the last of several files."""
    return max(_logs(data), key=_number_of)


def _logs(data: Path) -> Iterator[Path]:
    yield from data.glob("appendonly.aof")
    yield from data.glob("appendonlydir/*.incr.aof")


def _number_of(log: Path) -> int:
    """Return the number in a file name: 7 for appendonly.aof.7.incr.aof."""
    parts = log.name.split(".")
    return int(parts[2]) if len(parts) > 2 else 0
