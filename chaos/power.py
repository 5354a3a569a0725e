"""A power failure as Redis meets it: the process is gone, and the disk holds what it held a while ago.

With `appendfsync everysec` the last writes are missing, from any byte on, be it in the midst of a command or a transaction. A
machine that is restored from a snapshot has data up to a minute old. Knows nothing of runs.
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
_RESTORED = 0.5  # of the failures; in the others the end of the file is cut
_OF_THIS_RUN = 0.7
_UNFINISHED = shutil.ignore_patterns("temp-*")  # which a rewrite renames when it is done


@dataclass(frozen=True, kw_only=True)
class PowerLoss:
    """What is missing: `cut_bytes` from the end of the file, or all since a copy that was so old."""

    cut_bytes: int = 0
    copy_age_seconds: float = 0.0

    def __str__(self) -> str:
        return f"a copy {self.copy_age_seconds:.1f} s old" if self.copy_age_seconds else f"{self.cut_bytes} bytes cut"


class Disk:
    """The disk under a Redis; `tick` lets it take copies."""

    def __init__(self, server: RedisServer, copies: Path, *, copy_seconds: float = 0.2) -> None:
        self._server = server
        self._folder = copies
        self._copy_seconds = copy_seconds  # between two copies
        self._copies: list[tuple[float, Path]] = []
        self._number = 0

    def tick(self) -> None:
        """To be called often, while the server runs."""
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
        """Redis 6.2 keeps all in one file, which may be cut only where it holds commands and nothing else."""
        return (self._server.data / "appendonlydir").exists()

    def fail(self, rng: random.Random, *, began_at: float) -> PowerLoss:
        """Kill the server and take away what it wrote last. It may be started again.

        Most copies that are put back are of the time since `began_at`, so that a run that began then is in them.
        """
        self._server.kill()
        return self._restore_copy(rng, began_at) if rng.random() < _RESTORED else self._cut_tail(rng)

    def _cut_tail(self, rng: random.Random) -> PowerLoss:
        """Few bytes as often as many: most cuts are in the midst of a command."""
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
        for later in [one for one in self._copies if one[0] > taken_at]:  # of a time that now never was
            shutil.rmtree(later[1])
            self._copies.remove(later)
        return PowerLoss(copy_age_seconds=time.time() - taken_at)


def newest_log(data: Path) -> Path:
    """The file to which Redis appends: since Redis 7 the last of several."""
    return max(_logs(data), key=_number_of)


def _logs(data: Path) -> Iterator[Path]:
    yield from data.glob("appendonly.aof")
    yield from data.glob("appendonlydir/*.incr.aof")


def _number_of(log: Path) -> int:
    """Of appendonly.aof.7.incr.aof, 7."""
    parts = log.name.split(".")
    return int(parts[2]) if len(parts) > 2 else 0
