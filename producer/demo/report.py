"""The summary that the demo prints at its end."""

import shlex
import sys
from pathlib import Path

from fleet.counted import counted
from producer.demo.command import DemoResult, HeldOut
from producer.demo.kill import digest_of_all


def demo_report(folder: Path, training: HeldOut, result: DemoResult) -> str:
    counts = result.status.counts
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    held_out = f"{training.accuracy:.1%} of {training.rows:,} held-out labelled texts"
    samples = [("kept", line) for line in result.kept] + [("dropped", line) for line in result.dropped]
    lines = [
        "",
        f"{counts.rows_in:,} rows in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, "
        f"{counts.rows_errored:,} errored; {result.status.rows_per_second:,.0f} rows/s",
        "",
        *(f"  {fate:<8}{score:6.2f}  {excerpt}" for fate, (score, excerpt) in samples),
        "",
        f"Accuracy at the threshold: {result.accuracy:.1%} (no paragraph seen in training); {held_out}",
        "This shows that the machinery works; it says nothing about the quality of fineweb-edu-classifier.",
        "",
        *_kill_lines(result),
        "",
        f"Shards        {shown}/shards",
        f"Classifier    {shown}/classifier",
        f"Kept rows     {shown}/kept/data",
        f"All scores    {shown}/kept/scores",
        f"Card          {shown}/kept/README.md",
        f"Logs          {shown}/state/logs",
        "",
        f"Go on with your own data:  {_producer()} run --help",
    ]
    return "\n".join(lines)


def _kill_lines(result: DemoResult) -> list[str]:
    comparison = result.comparison
    return [
        _kill_line(result),
        f"  with the kill  {len(comparison.killed):>3} files  sha256 {digest_of_all(comparison.killed)}",
        f"  undisturbed    {len(comparison.undisturbed):>3} files  sha256 {digest_of_all(comparison.undisturbed)}",
        "  Identical, file by file."
        if comparison.is_identical
        else f"  DIFFERENT: {', '.join(comparison.differing) or 'nothing was published'}",
    ]


def _kill_line(result: DemoResult) -> str:
    if result.done_before_kill is None:
        return "No worker was killed: the run ended too soon. Use more --rows to see a kill."
    shards = counted(result.status.counts.shards, "shard")
    killed = f"A worker was killed with SIGKILL after {result.done_before_kill} of {shards}."
    begun_again = f" The other began again: {', '.join(result.begun_again)}." if result.begun_again else ""
    return killed + begun_again


def _producer() -> str:
    """The command line of this program, by its path, because it may not be on the PATH."""
    called = Path(sys.argv[0])
    if called.name != "producer":
        return f"{shlex.quote(sys.executable)} -m producer"
    path = called.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
