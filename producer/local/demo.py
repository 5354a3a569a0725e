"""Demonstrate a run offline: real text, a small classifier, and a killed worker that changes no published file."""

import hashlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import typer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import list_workers
from shardsift.fleet.process.command_line import own_command, say
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.producer.local.demo_data import write_labelled, write_shards
from shardsift.producer.local.run import OnPoll, run_locally
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.status import ExitCode, RunStatus

SHARDS = 8
_WORKERS = 2
_MIN_SCORE = 3.0
_SEED = 20_241
_FIT_SECONDS = 0.1  # per labelled text, on two CPU cores
_LEASE_SECONDS = 15.0  # after this, another worker takes the killed worker's shard; 60 in a fleet


def show_demo(folder: Path, settings: Settings, *, rows: int) -> ExitCode:
    """Do a run twice, once with a killed worker. Returns FAILED if the published files of both differ."""
    say(f"1/4  Making {SHARDS} shards of {rows} rows of real English text in {folder}/")
    shown, folder = folder, folder.absolute()
    labelled_rows = max(100, 6 * rows)
    _make_inputs(folder, rows=rows, labelled_rows=labelled_rows)
    say(
        f"2/4  Fitting a classification head on a frozen MiniLM encoder: {labelled_rows:,} texts. Nothing is printed "
        f"meanwhile, on two CPU cores for about {labelled_rows * _FIT_SECONDS:,.0f} s"
    )
    fit_classifier(folder)
    say(f"3/4  Scoring and filtering with {_WORKERS} workers, of which one is killed in the middle")
    settings = settings.model_copy(update={"redis_url": None, "state_dir": folder / "state"})
    killer = Killer()
    quick = settings.model_copy(update={"lease_seconds": _LEASE_SECONDS})
    status = _sifted(folder, "kept", quick, on_poll=killer.on_poll)
    say("4/4  The same run undisturbed, to compare")
    _sifted(folder, "undisturbed", settings)
    killed, undisturbed = (published_digests(folder / name) for name in ("kept", "undisturbed"))
    differing = differing_files(killed, undisturbed)
    verdict = f"DIFFERENT: {', '.join(differing)}" if differing else "Identical, file by file."
    counts = status.counts
    typer.echo(
        f"""
{counts.rows_in:,} rows in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, {counts.rows_errored:,} errored; \
{status.rows_per_second:,.0f} rows/s
{_kill_line(killer, status, folder)}
  with the kill  {len(killed):>3} files  sha256 {_digest_of_all(killed)}
  undisturbed    {len(undisturbed):>3} files  sha256 {_digest_of_all(undisturbed)}
  {verdict}

This shows that the machinery works; it says nothing about the quality of fineweb-edu-classifier.

Shards        {shown}/shards
Classifier    {shown}/classifier
Kept rows     {shown}/kept/data
All scores    {shown}/kept/scores
Card          {shown}/kept/README.md
Logs          {shown}/state/logs"""
    )
    return ExitCode.FAILED if differing else status.exit_code


def _make_inputs(folder: Path, *, rows: int, labelled_rows: int) -> None:
    """Write the shards and the labelled texts. They share no paragraph."""
    if folder.exists() and not (folder / "shards").is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Run the demo in another folder.")
    shutil.rmtree(folder, ignore_errors=True)
    write_shards(folder / "shards", shards=SHARDS, rows=rows, seed=_SEED)
    write_labelled(folder / "labelled.parquet", rows=labelled_rows, seed=_SEED)


def fit_classifier(folder: Path) -> None:
    """Fit the demo's classifier with `worker train`, in a separate process, because only workers may import torch."""
    command = own_command("worker", "train", "--data", str(folder / "labelled.parquet"), "--base-model", "demo")
    command += ["--max-tokens", "128", "--threshold", str(_MIN_SCORE), "--output", str(folder / "classifier")]
    log = folder / "state" / "logs" / "train.log"  # torch and transformers print a lot
    log.parent.mkdir(parents=True)
    with log.open("wb") as output:
        trained = subprocess.run(command, stdout=output, stderr=output, check=False)
    if trained.returncode:
        last_line = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
        raise UsageError(f"The demo's classifier could not be fitted. {last_line} (The whole log: {log})")


def _sifted(
    folder: Path, output: str, settings: Settings, *, on_poll: OnPoll = lambda ledger, run_id: None
) -> RunStatus:
    options = RunOptions(
        input_uris=(str(folder / "shards"),),
        models=(str(folder / "classifier"),),
        min_score=_MIN_SCORE,
        output_uri=str(folder / output),
    )
    return run_locally(plan_run(options), settings, workers=_WORKERS, on_poll=on_poll)


@dataclass
class Killer:
    """Kill the first worker of a run once, after a shard is done and while every worker is scoring another shard."""

    done_before: int | None = None  # shards that were done at the time of the kill; None: no kill yet

    def on_poll(self, ledger: Ledger, run_id: str) -> None:
        if self.done_before is not None:
            return
        counts = ledger.counts(run_id)
        workers = list_workers(ledger.redis)
        if counts.done and counts.running >= len(workers) > 0:
            os.killpg(workers[0].pid, signal.SIGKILL)  # both parent and child, as in a power loss
            self.done_before = counts.done
            say(
                f"Killed a worker with SIGKILL after {counts.done} of {counted(counts.shards, 'shard')}. Another takes over its "
                f"shard when the lease expires, {_LEASE_SECONDS:.0f} s after the last renewal."
            )


def _kill_line(killer: Killer, status: RunStatus, folder: Path) -> str:
    if killer.done_before is None:
        return "No worker was killed: the run ended too soon."
    manifest = pq.read_table(folder / "kept" / "manifest.parquet", columns=["shard", "attempt"]).to_pylist()
    again = [line["shard"] for line in manifest if line["attempt"] > 1]
    killed = f"A worker was killed with SIGKILL after {killer.done_before} of {counted(status.counts.shards, 'shard')}."
    return killed + (f" The other took over {', '.join(again)}." if again else "")


def published_digests(output: Path) -> dict[str, str]:
    files = sorted(file for folder in ("data", "scores") for file in (output / folder).rglob("*.parquet"))
    return {str(file.relative_to(output)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def differing_files(killed: dict[str, str], undisturbed: dict[str, str]) -> list[str]:
    """List the paths whose digests differ. If both outputs are empty, the list has a message instead."""
    paths = sorted(killed.keys() | undisturbed.keys())
    return [path for path in paths if killed.get(path) != undisturbed.get(path)] if paths else ["nothing was published"]


def _digest_of_all(digests: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{path} {digest}\n" for path, digest in digests.items()).encode()).hexdigest()
