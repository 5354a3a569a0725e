"""Kill a worker in the middle of a run, and hold what the run publishes against what an undisturbed run publishes."""

import hashlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from fleet.counted import counted
from fleet.ledger import Ledger
from producer.local.processes import Child


@dataclass
class Killer:
    """Kills the first worker of a run once, when a shard is done and every worker has another in hand."""

    lease_seconds: float
    tell: Callable[[str], None]
    done_before: int | None = None  # shards that were done when it killed; None: it has not yet

    def look(self, ledger: Ledger, run_id: str, workers: list[Child]) -> None:
        if self.done_before is not None:
            return
        counts = ledger.counts(run_id)
        if counts.done and counts.running == len(workers):
            os.killpg(workers[0].pid, signal.SIGKILL)  # parent and scoring process: as if the machine lost its power
            self.done_before = counts.done
            self.tell(
                f"Killed a worker with SIGKILL after {counts.done} of {counted(counts.shards, 'shard')}. Another takes up what "
                f"it had in hand when its lease has run out, {self.lease_seconds:.0f} s after the last renewal."
            )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The published Parquet files of two runs, by path, with their sha256."""

    killed: dict[str, str]
    undisturbed: dict[str, str]

    @property
    def is_identical(self) -> bool:
        return bool(self.killed) and self.killed == self.undisturbed

    @property
    def differing(self) -> list[str]:
        paths = self.killed.keys() | self.undisturbed.keys()
        return sorted(path for path in paths if self.killed.get(path) != self.undisturbed.get(path))


def published_digests(output: Path) -> dict[str, str]:
    """The sha256 of each data and score file, read from the disk now."""
    files = sorted(file for folder in ("data", "scores") for file in (output / folder).rglob("*.parquet"))
    return {str(file.relative_to(output)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def digest_of_all(digests: dict[str, str]) -> str:
    """One sha256 for all files: that of the lines `<path> <sha256>`."""
    return hashlib.sha256("".join(f"{path} {digest}\n" for path, digest in digests.items()).encode()).hexdigest()


def shards_begun_again(output: Path) -> list[str]:
    """The shards that another attempt had in hand before the one that was published."""
    manifest = pq.read_table(output / "manifest.parquet", columns=["shard", "attempt"])
    attempts = zip(manifest["shard"].to_pylist(), manifest["attempt"].to_pylist(), strict=True)
    return [shard for shard, attempt in attempts if attempt > 1]
