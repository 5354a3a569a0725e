"""Demonstrate a run offline: real text, a small classifier, a worker killed in the middle, and the same files as undisturbed."""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.announcements import list_workers
from fleet.process.command_line import own_command, say
from fleet.process.settings import Settings
from fleet.process.wording import counted
from producer.local.demo_data import write_labelled, write_shards
from producer.local.run import run_locally
from producer.planning.options import RunOptions
from producer.planning.plan import Plan, plan_run
from producer.status import ExitCode, RunStatus, run_status

SHARDS = 8
_MIN_SCORE = 3.0
_SEED = 20_241
_FIT_SECONDS = 0.1  # per labelled text, on two CPU cores
_LEASE_SECONDS = 15.0  # after this, another worker takes the killed worker's shard; 60 in a fleet
_SAMPLES = 3  # kept and dropped rows in the summary, each
_EXCERPT_CHARS = 90


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


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """How the demo's two runs ended, and what their outputs contain."""

    status: RunStatus  # of the run whose worker was killed
    done_before_kill: int | None  # None: the run ended before a worker could be killed
    begun_again: list[str]  # shards that the killed worker was scoring
    comparison: Comparison
    kept: list[tuple[float, str]]  # (score, start of the text), highest first
    dropped: list[tuple[float, str]]  # lowest first

    @property
    def exit_code(self) -> ExitCode:
        return self.status.exit_code if self.comparison.is_identical else ExitCode.FAILED


def make_inputs(folder: Path, *, rows: int, labelled_rows: int) -> None:
    """Write the shards and the labelled texts; their paragraphs are disjoint."""
    if folder.exists() and not (folder / "shards").is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Name another --folder for the demo.")
    shutil.rmtree(folder, ignore_errors=True)
    write_shards(folder / "shards", shards=SHARDS, rows=rows, seed=_SEED)
    write_labelled(folder / "labelled.parquet", rows=labelled_rows, seed=_SEED)


def expected_fit_seconds(labelled_rows: int) -> float:
    return labelled_rows * _FIT_SECONDS


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """How well the head predicts labelled texts that it was not fitted to."""

    rows: int
    accuracy: float  # at the threshold


def fit_classifier(folder: Path) -> HeldOut:
    """Fit the head with `worker train`, in a separate process because it needs torch."""
    command = own_command("worker", "train", "--data", str(folder / "labelled.parquet"), "--base-model", "demo")
    command += ["--max-tokens", "128", "--threshold", str(_MIN_SCORE)]
    command += ["--output", str(folder / "classifier"), "--json"]
    log = folder / "state" / "logs" / "train.log"  # torch and transformers print a lot
    log.parent.mkdir(parents=True)
    with log.open("wb") as stderr:
        trained = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, check=False)
    if trained.returncode:
        last_line = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
        raise UsageError(f"The demo's classifier could not be fitted. {last_line} (The whole log: {log})")
    held_out = json.loads(trained.stdout)["held_out"]
    return HeldOut(rows=held_out["rows"], accuracy=held_out["at_threshold"]["accuracy"])


def sift_and_kill(folder: Path, settings: Settings, *, workers: int) -> tuple[RunStatus, Killer]:
    """Run the main job on the demo's shards, and kill a worker in the middle of it."""
    killer = Killer(lease_seconds=_LEASE_SECONDS, tell=say)
    settings = settings.model_copy(update={"lease_seconds": _LEASE_SECONDS})
    return run_locally(_plan(folder, "kept"), settings, workers=workers, on_look=killer.look), killer


def sift_undisturbed(folder: Path, settings: Settings, *, workers: int) -> RunStatus:
    """The same job into another folder."""
    return run_locally(_plan(folder, "undisturbed"), settings, workers=workers)


def look_at(folder: Path, status: RunStatus, killer: Killer) -> DemoResult:
    """Read what both runs published."""
    rows = _rows_with_scores(folder)
    return DemoResult(
        status=status,
        done_before_kill=killer.done_before,
        begun_again=shards_begun_again(folder / "kept"),
        comparison=Comparison(
            killed=published_digests(folder / "kept"), undisturbed=published_digests(folder / "undisturbed")
        ),
        kept=_samples(rows, kept=True),
        dropped=_samples(rows, kept=False),
    )


def _plan(folder: Path, output: str) -> Plan:
    return plan_run(
        RunOptions(
            input_uris=(str(folder / "shards"),),
            models=(str(folder / "classifier"),),
            min_score=_MIN_SCORE,
            output_uri=str(folder / output),
        )
    )


def _rows_with_scores(folder: Path) -> pa.Table:
    """Every input row with its score, shard by shard. Score files have the same row order as their shards."""
    shards = sorted((folder / "shards").glob("*.parquet"))
    texts = pa.concat_tables(pq.read_table(shard, columns=["text"]) for shard in shards)
    scores = pa.concat_tables(
        pq.read_table(folder / "kept" / "scores" / shard.name, columns=["score"]) for shard in shards
    )
    return texts.append_column("score", scores["score"])


def _samples(rows: pa.Table, *, kept: bool) -> list[tuple[float, str]]:
    ordered = sorted(
        (
            (score, " ".join(text.split())[:_EXCERPT_CHARS])
            for score, text in zip(rows["score"].to_pylist(), rows["text"].to_pylist(), strict=True)
            if (score >= _MIN_SCORE) == kept
        ),
        reverse=kept,
    )
    step = max(1, len(ordered) // _SAMPLES)
    return ordered[::step][:_SAMPLES]


def demo_report(folder: Path, training: HeldOut, result: DemoResult) -> str:
    counts = result.status.counts
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    samples = [("kept", line) for line in result.kept] + [("dropped", line) for line in result.dropped]
    lines = [
        "",
        f"{counts.rows_in:,} rows in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, "
        f"{counts.rows_errored:,} errored; {result.status.rows_per_second:,.0f} rows/s",
        "",
        *(f"  {fate:<8}{score:6.2f}  {excerpt}" for fate, (score, excerpt) in samples),
        "",
        f"Accuracy at the threshold: {training.accuracy:.1%} of {training.rows:,} held-out labelled texts",
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
    killed, undisturbed = result.comparison.killed, result.comparison.undisturbed
    different = f"DIFFERENT: {', '.join(result.comparison.differing) or 'nothing was published'}"
    return [
        _kill_line(result),
        f"  with the kill  {len(killed):>3} files  sha256 {digest_of_all(killed)}",
        f"  undisturbed    {len(undisturbed):>3} files  sha256 {digest_of_all(undisturbed)}",
        "  Identical, file by file." if result.comparison.is_identical else f"  {different}",
    ]


def _kill_line(result: DemoResult) -> str:
    if result.done_before_kill is None:
        return "No worker was killed: the run ended too soon. Use more --rows to see a kill."
    shards = counted(result.status.counts.shards, "shard")
    killed = f"A worker was killed with SIGKILL after {result.done_before_kill} of {shards}."
    return killed + (f" The other began again: {', '.join(result.begun_again)}." if result.begun_again else "")


def _producer() -> str:
    """The command line of this program, by its path, because it may not be on the PATH."""
    called = Path(sys.argv[0])
    if called.name != "producer":
        return f"{shlex.quote(sys.executable)} -m producer"
    path = called.absolute()
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
