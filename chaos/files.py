"""Inject faults into the files of one run, and repair them as its operator would. Knows no Redis.

Staged files are damaged only while at least two shards are open. So no file is damaged between the finalizer's check of
it and its move, when no check could help.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.faults import Fault, Kind, Planned

_WHOLE_OUTPUTS = 0.25  # share of damages that delete the whole output
_FLIP = 0x40


class FileVictim:
    """The files of a run. `touched` has the shards whose files had a fault. Each shard gets at most one of `faults`.

    The files of a `base` that the run extends are never damaged, because another run would have to repair them.
    """

    def __init__(
        self,
        name: str,
        shards: Path,
        output: Path,
        base: Path | None,
        faults: Iterator[Planned],
        *,
        output_faults: int,
        rng: random.Random,
    ) -> None:
        self.touched: set[str] = set()
        self._name = name
        self._shards = shards
        self._output = output
        self._base = base
        self._faults = faults
        self._output_faults = output_faults
        self._rng = rng
        self._next: Planned | None = None
        self._due_at = 0.0
        self._replaced: tuple[Path, float] | None = None  # the replaced input, and when to restore it

    @property
    def is_input_whole(self) -> bool:
        return self._replaced is None

    def tick(self, now: float, open_shards: set[str], may_damage: Callable[[Kind], bool]) -> Iterator[Fault]:
        """Inject a fault that is due, unless too few shards are open. Restores a replaced input when its time is over."""
        if self._replaced and now >= self._replaced[1]:
            self._put_back()
        if self._next is None:
            self._plan_next(now)
        if self._next is None or now < self._due_at or len(open_shards) < 2 or not may_damage(self._next.kind):
            return
        planned, self._next = self._next, None
        if planned.kind == Kind.STAGED:
            is_done = self._damage_staged()
        else:
            is_done = self._replace_input(open_shards, until=now + planned.lasts_seconds)
        if is_done:
            yield Fault(kind=planned.kind, at=now, victim=self._name)

    def damage_output(self, now: float) -> Fault | None:
        """Damage the output of a published run. Returns None if it was already damaged often enough."""
        if self._output_faults == 0:
            return None
        self._output_faults -= 1
        self.touched = {path.stem for path in self._shards.glob("*.parquet")}
        if self._rng.random() < _WHOLE_OUTPUTS:
            aside = self._output.with_name(f"{self._output.name}.deleted")  # another finalizer may be writing to it
            self._output.rename(aside)
            shutil.rmtree(aside)
            if self._base:  # as if restored from a backup
                shutil.copytree(self._base, self._output, dirs_exist_ok=True)
        else:
            files = [*self._output.glob("data/**/*.parquet"), *self._output.glob("scores/**/*.parquet")]
            if self._base:
                files = [file for file in files if not (self._base / file.relative_to(self._output)).exists()]
            files += self._output.glob("*.parquet")
            for file in self._rng.sample(sorted(files), self._rng.randint(1, 3)):
                self._rng.choice(_DAMAGES)(file, self._rng)
        return Fault(kind=Kind.OUTPUT, at=now, victim=self._name)

    def _plan_next(self, now: float) -> None:
        self._next = next(self._faults, None)
        if self._next:
            self._due_at = now + self._next.after_seconds

    def _damage_staged(self) -> bool:
        """Damage a staged file, at most once per shard. Returns False if no other shard has staged files yet."""
        found = self._output.glob(".shardsift/*/staged/**/*")
        # Merged files have rows of several shards.
        staged = [file for file in found if file.is_file() and not file.name.startswith("merged-")]
        fresh = [file for file in staged if file.parent.name.removesuffix(".parquet") not in self.touched]
        if not fresh:
            return False
        file = self._rng.choice(sorted(fresh))
        try:
            self._rng.choice(_DAMAGES)(file, self._rng)
        except FileNotFoundError:  # removed by a worker that had lost its shard
            return False
        self.touched.add(file.parent.name.removesuffix(".parquet"))
        return True

    def _replace_input(self, open_shards: set[str], *, until: float) -> bool:
        """Replace an input by another file with as many rows, as an upstream job might. Replaces one input at a time.

        Returns False if an input is still replaced, or if no open shard has an untouched input.
        """
        fresh = sorted(open_shards - self.touched)
        if self._replaced or not fresh:
            return False
        shard = self._rng.choice(fresh)
        self.touched.add(shard)
        file = self._shards / f"{shard}.parquet"
        table = pq.read_table(file)
        texts = pa.array([f"other {text}" for text in table["text"].to_pylist()], pa.string())
        other = self._shards / f"{shard}.other"
        pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", texts), other)
        os.link(file, self._shards / f"{shard}.kept")
        other.replace(file)
        self._replaced = file, until
        return True

    def _put_back(self) -> None:
        assert self._replaced
        file, _ = self._replaced
        file.with_suffix(".kept").replace(file)
        self._replaced = None


def _flip(file: Path, rng: random.Random) -> None:
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
    with file.open("r+b") as opened:  # does not create a file that has just been removed
        opened.truncate(0)
        opened.write(content)


_DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _cut_short, _empty, _delete)
