"""Kill a worker in the middle of a run, and compare the published files with those of an undisturbed run."""

import hashlib
import os
import signal
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from fleet.counted import counted
from fleet.ledger import Ledger
from fleet.workers import list_workers
from producer.status import run_status


@dataclass
class Killer:
    """Kills the first worker of a run once, after a shard is done and while every worker is scoring another one.

    It shows the status of the run first.
    """

    lease_seconds: float
    tell: Callable[[str], None]
    done_before: int | None = None  # shards that were done at the time of the kill; None: no kill yet

    def look(self, ledger: Ledger, run_id: str) -> None:
        if self.done_before is not None:
            return
        counts = ledger.counts(run_id)
        workers = list_workers(ledger.redis)
        if counts.done and counts.running == len(workers) > 0:
            self.tell(_screen(ledger, run_id))
            os.killpg(workers[0].pid, signal.SIGKILL)  # parent and child, as in a power loss
            self.done_before = counts.done
            self.tell(
                f"Killed a worker with SIGKILL after {counts.done} of {counted(counts.shards, 'shard')}. Another takes over its "
                f"shard when the lease expires, {self.lease_seconds:.0f} s after the last renewal."
            )


def _screen(ledger: Ledger, run_id: str) -> str:
    screen = str(run_status(ledger, run_id, is_of_this_machine=True))
    return f"`producer status` says:\n\n{textwrap.indent(screen, '  ')}\n"


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
    """The sha256 of each data and score file on disk."""
    files = sorted(file for folder in ("data", "scores") for file in (output / folder).rglob("*.parquet"))
    return {str(file.relative_to(output)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def digest_of_all(digests: dict[str, str]) -> str:
    """One sha256 over the lines `<path> <sha256>` of all files."""
    return hashlib.sha256("".join(f"{path} {digest}\n" for path, digest in digests.items()).encode()).hexdigest()


def shards_begun_again(output: Path) -> list[str]:
    """The shards that needed more than one attempt."""
    manifest = pq.read_table(output / "manifest.parquet", columns=["shard", "attempt"])
    attempts = zip(manifest["shard"].to_pylist(), manifest["attempt"].to_pylist(), strict=True)
    return [shard for shard, attempt in attempts if attempt > 1]
