"""How long a fleet takes, as a multiple of its work ÷ its speed: the real ledger, simulated workers and simulated time.

Example: PYTHONPATH=tests python -m benchmarks.tail --rows-per-task 0 --rows-per-task 50000

Workers have two speeds, and some are preempted: they vanish without a word, so that their lease must end, and others take their
place a minute later. Starts of shards and uploads take no time, because workers do them beside the work on the device.
"""

import heapq
import random
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.ledger.records import fineweb_shards, fineweb_spec, receipt_of
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import WINDOW_ROWS, Shard, part_name
from shardsift.producer.local.redis import embedded_redis
from shardsift.producer.planning.inputs import part_starts
from support.ledger_machine import CLOCK, START, ClockedRedis

_ROWS, _GROUP_ROWS = 845_000, 1_000  # of a file of FineWeb
_STEP_ROWS = 2 * WINDOW_ROWS  # between two renewals, with which scores are saved
_SPEEDS = 900.0, 480.0  # rows per second: about those of an L4 and a T4 with BERT-base
_MESSAGES, _SWEEP_SECONDS, _IDLE_SECONDS, _REPLACED_SECONDS = 2_000, 15.0, 1.0, 60.0


@dataclass(kw_only=True)
class Fleet:
    """Every other worker has the other speed. `preempted` is their share in the time in which they would score a whole file."""

    ledger: Ledger
    chance: random.Random
    rows_per_task: int
    shards: int = 250
    workers: int = 100
    preempted: float = 0.05
    now: float = 0.0
    messages: deque[str] = field(default_factory=deque)
    is_done: bool = False

    def makespan(self) -> float:
        """The time to the end ÷ the least time for the work. Empties Redis."""
        self.ledger.redis.flushall()
        self._move_clock(0.0)
        spec = fineweb_spec(self.shards)
        parts = [part for file in fineweb_shards(self.shards) for part in _parts(file, self.rows_per_task)]
        self.ledger.create_run(spec, parts, now=0.0)
        speeds = [_SPEEDS[number % 2] for number in range(self.workers)]
        lives = [self._sweeps(spec.run_id)]
        lives += [self._worker(f"w{number}", speed, spec.run_id) for number, speed in enumerate(speeds)]
        turns = [(0.0, number) for number in range(len(lives))]
        while not self.is_done:
            due, number = heapq.heappop(turns)
            self._move_clock(due)
            heapq.heappush(turns, (due + next(lives[number]), number))
        return self.now / (self.shards * _ROWS / sum(speeds))

    def _move_clock(self, now: float) -> None:
        self.now = now
        self.ledger.redis.set(CLOCK, START + int(now * 1000))

    def _sweeps(self, run_id: str) -> Iterator[float]:
        while True:
            due = self.ledger.take_due(run_id, room=_MESSAGES - len(self.messages))
            self.messages.extendleft(due.again)
            self.messages.extend(due.fresh)
            yield _SWEEP_SECONDS

    def _worker(self, name: str, speed: float, run_id: str) -> Iterator[float]:
        """Yields the seconds until its next step."""
        ends_at = self.now + self.chance.expovariate(self.preempted * speed / _ROWS)
        while not self.is_done:
            claim = self.ledger.claim(run_id, self.messages.popleft(), name) if self.messages else None
            if not isinstance(claim, Claim):
                yield _IDLE_SECONDS
                continue
            scored = self.ledger.saved_scores(claim)
            for first_row, end in _steps(claim.shard):
                seconds = 0.0 if first_row in scored else (end - first_row) / speed
                if self.now + seconds > ends_at:
                    yield max(0.0, ends_at - self.now) + _REPLACED_SECONDS
                    yield from self._worker(f"{name}+", speed, run_id)
                yield seconds
                self.ledger.save_scores(claim, first_row, b"scores")
                self.ledger.renew(claim, rows=end - claim.shard.first_row)
            receipt = receipt_of(run_id, claim.shard, token=claim.token, worker=name)
            self.is_done = not self.ledger.complete(claim, receipt)
        yield 0.0


def _parts(file: Shard, rows_per_task: int) -> Iterator[Shard]:
    starts = part_starts([_GROUP_ROWS] * (_ROWS // _GROUP_ROWS), rows_per_task)
    for number, (start, end) in enumerate(pairwise([*starts, _ROWS])):
        yield replace(file, name=part_name(file.name, number), first_row=start, row_limit=end - start)


def _steps(shard: Shard) -> Iterator[tuple[int, int]]:
    end = shard.first_row + (shard.row_limit or _ROWS)
    return pairwise([*range(shard.first_row, end, _STEP_ROWS), end])


def main(rows_per_task: Annotated[list[int], typer.Option(help="0: whole files.")], seeds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder, embedded_redis(Path(folder)) as url:
        ledger = Ledger(ClockedRedis.from_url(url, decode_responses=True), Settings())
        for rows in rows_per_task:
            fleets = (
                Fleet(ledger=ledger, chance=random.Random(seed), rows_per_task=rows or _ROWS) for seed in range(seeds)
            )
            found = [fleet.makespan() for fleet in fleets]
            told = f"{median(found):.3f} ({min(found):.3f} to {max(found):.3f}, {seeds} seeds)"
            sys.stdout.write(f"{rows:,} rows per task: {told} times work / speed\n")
            sys.stdout.flush()
        ledger.redis.close()


if __name__ == "__main__":
    typer.run(main)
