"""What is done to the files of one run, and what its operator does about it. Knows no Redis.

Files that wait for publication are damaged while at least two shards are open, so never at the moment between the
finalizer's look at them and its move: no look at a file holds for longer than that.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.faults import Fault, Kind, Planned

_BETWEEN_SECONDS = 0.5  # two damaged files of a run
_FLIP = 0x40


class FileVictim:
    """The files of a run, which has one kind of fault. `touched` are the shards that it met so far."""

    def __init__(self, planned: Planned, name: str, shards: Path, output: Path, rng: random.Random) -> None:
        self.kind = planned.kind
        self.touched: set[str] = set()
        self._planned = planned
        self._name = name
        self._shards = shards
        self._output = output
        self._rng = rng
        self._due_at: float | None = None
        self._replaced: tuple[Fault, Path, float] | None = None  # the input, and until when

    @property
    def is_input_whole(self) -> bool:
        return self._replaced is None

    def tick(self, now: float, open_shards: set[str], may_damage: Callable[[], bool]) -> Iterator[Fault]:
        """Of an enqueued run. Where nothing may be damaged, what was replaced is put back all the same."""
        if self._replaced and now >= self._replaced[2]:
            self._put_back(now)
        if self._due_at is None:
            self._due_at = now + self._planned.after_seconds
        if now < self._due_at or len(open_shards) < 2 or self._is_done or not may_damage():
            return
        if self.kind == Kind.STAGED and self._damage_staged():
            self._due_at = now + _BETWEEN_SECONDS
            yield self._fault(now)
        elif self.kind == Kind.INPUT:
            fault = self._fault(now)
            self._replace_input(fault, open_shards)
            yield fault

    def damage_output(self, now: float) -> Fault | None:
        """Of a run that is published, once."""
        if self.kind != Kind.OUTPUT or self.touched:
            return None
        self.touched = {path.stem for path in self._shards.glob("*.parquet")}
        if self._rng.random() < 0.25:
            shutil.rmtree(self._output)
        else:
            files = [*self._output.glob("*.parquet"), *self._output.glob("data/**/*.parquet")]
            files += self._output.glob("scores/**/*.parquet")
            for file in self._rng.sample(sorted(files), self._rng.randint(1, 3)):
                self._rng.choice(_DAMAGES)(file, self._rng)
        return self._fault(now)

    @property
    def _is_done(self) -> bool:
        """An input is replaced once, and an output is damaged when it is published."""
        return self.kind == Kind.OUTPUT or (self.kind == Kind.INPUT and bool(self.touched))

    def _fault(self, now: float) -> Fault:
        return Fault(kind=self.kind, at=now, victim=self._name)

    def _damage_staged(self) -> bool:
        """Each shard's files once at most; False where there is no other yet."""
        staged = [file for file in self._output.glob(".shardsift/*/staged/**/*") if file.is_file()]
        fresh = [file for file in staged if file.parent.name.removesuffix(".parquet") not in self.touched]
        if not fresh:
            return False
        file = self._rng.choice(sorted(fresh))
        try:
            self._rng.choice(_DAMAGES)(file, self._rng)
        except FileNotFoundError:  # a worker that came too late has removed it
            return False
        self.touched.add(file.parent.name.removesuffix(".parquet"))
        return True

    def _replace_input(self, fault: Fault, open_shards: set[str]) -> None:
        """By another file with as many rows, as a pipeline upstream would."""
        shard = self._rng.choice(sorted(open_shards))
        self.touched.add(shard)
        file = self._shards / f"{shard}.parquet"
        table = pq.read_table(file)
        texts = pa.array([f"other {text}" for text in table["text"].to_pylist()], pa.string())
        other = self._shards / f"{shard}.other"
        pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", texts), other)
        os.link(file, self._shards / f"{shard}.kept")
        other.replace(file)
        self._replaced = fault, file, fault.at + self._planned.lasts_seconds

    def _put_back(self, now: float) -> None:
        assert self._replaced
        fault, file, _ = self._replaced
        file.with_suffix(".kept").replace(file)
        fault.over_at = now
        self._replaced = None


def _flip(file: Path, rng: random.Random) -> None:
    """One bit, so that the size stays."""
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= _FLIP
    _overwrite(file, bytes(content))


def _cut_short(file: Path, rng: random.Random) -> None:
    content = file.read_bytes()
    _overwrite(file, content[: rng.randrange(1, len(content))])


def _empty(file: Path, rng: random.Random) -> None:
    _overwrite(file, b"")


def _delete(file: Path, rng: random.Random) -> None:
    file.unlink()


def _overwrite(file: Path, content: bytes) -> None:
    with file.open("r+b") as opened:  # not made anew: where it is gone meanwhile, there is nothing to damage
        opened.truncate(0)
        opened.write(content)


_DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _cut_short, _empty, _delete)
