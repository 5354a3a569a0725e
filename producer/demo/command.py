"""The offline demo: generate text, fit a small classifier, and do a run in which one worker is killed."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.command_line import own_command, say
from fleet.errors import UsageError
from fleet.settings import Settings
from producer.demo.kill import Comparison, Killer, published_digests, shards_begun_again
from producer.demo.shards import true_kind, write_labelled, write_shards
from producer.demo.texts import Kind
from producer.local.run import run_locally
from producer.options import RunOptions
from producer.plan import Plan, plan_run
from producer.status import ExitCode, RunStatus

SHARDS = 8
_MIN_SCORE = 3.0
_SEED = 20_241
_FIT_SECONDS = 0.1  # per labelled text, on two CPU cores
_LEASE_SECONDS = 15.0  # after this, another worker takes the killed worker's shard; 60 in a fleet
_SAMPLES = 3  # kept and dropped rows in the summary, each
_EXCERPT_CHARS = 90


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """How the demo's two runs ended, and what their outputs contain."""

    status: RunStatus  # of the run whose worker was killed
    done_before_kill: int | None  # None: the run ended before a worker could be killed
    begun_again: list[str]  # shards that the killed worker was scoring
    comparison: Comparison
    accuracy: float  # share of rows that were correctly kept or dropped; none was seen in training
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
        accuracy=_accuracy(rows),
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
    texts = pa.concat_tables(pq.read_table(shard, columns=["text", "file_path"]) for shard in shards)
    scores = pa.concat_tables(
        pq.read_table(folder / "kept" / "scores" / shard.name, columns=["score"]) for shard in shards
    )
    return texts.append_column("score", scores["score"])


def _accuracy(rows: pa.Table) -> float:
    right = [
        (score >= _MIN_SCORE) == (true_kind(path) == Kind.EDUCATIONAL)
        for path, score in zip(rows["file_path"].to_pylist(), rows["score"].to_pylist(), strict=True)
    ]
    return float(sum(right) / len(right))


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
