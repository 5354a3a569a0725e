"""Another threshold over the same rows: a fresh run against `producer refilter`. Writes a results file.

Example: python -m benchmarks.refilter --shards 4 --rows 1500
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.results_file import provenance_of, write_results
from fleet.process.command_line import own_command
from producer.local.demo_data import write_shards

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`seconds` is the whole command, with the start of Redis, finalizer and worker; `rows_per_second` is of the work alone."""

    command: str
    seconds: float
    rows: int
    rows_kept: int
    rows_per_second: float


@cli.command()
def refilter(
    shards: Annotated[int, typer.Option(min=1)] = 4,
    rows: Annotated[int, typer.Option(min=1, help="In each shard.")] = 1500,
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Score a folder at one threshold; then publish it at another, by a fresh run and by the stored scores."""
    found = provenance_of("benchmarks.refilter")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name:
        folder = Path(name)
        write_shards(folder / "shards", shards=shards, rows=rows, seed=1)
        model = minilm(folder / "minilm")
        run = ("run", "--input", folder / "shards", "--model", model, "--workers", 1)
        earlier = _measured(folder, *run, "--min-score", 0, "--output", folder / "earlier")
        fresh = _measured(folder, *run, "--min-score", 0.25, "--output", folder / "fresh")
        stored = ("refilter", folder / "earlier", "--input", folder / "shards", "--workers", 1)
        again = _measured(folder, *stored, "--min-score", 0.25, "--output", folder / "again")
        if _digests(folder / "fresh") != _digests(folder / "again"):
            raise SystemExit("The two outputs differ.")
        if not 0 < again.rows_kept < earlier.rows_kept < shards * rows:
            raise SystemExit("The thresholds tell no rows apart.")
    report = {
        "runs": [asdict(one) for one in (earlier, fresh, again)],
        "times_a_fresh_run": {
            "rows_per_second": round(again.rows_per_second / fresh.rows_per_second, 1),
            "whole_command": round(fresh.seconds / again.seconds, 1),
        },
        "outputs_are_equal": True,
    }
    typer.echo(write_results("refilter", found, report, output).read_text())


def minilm(folder: Path) -> Path:
    """A classifier of the size of MiniLM, with random weights."""
    from benchmarks.scorer.case import Model
    from benchmarks.scorer.models import read_tokenizer, save_model
    from worker.training.base_model import verified_demo_encoder

    return save_model(Model.MINILM, folder, tokenizer=read_tokenizer(str(verified_demo_encoder())))


def _measured(folder: Path, *arguments: object) -> Measured:
    command = own_command("producer", *map(str, arguments), "--json")
    environment = {**os.environ, "REDIS_URL": "", "SHARDSIFT_STATE_DIR": str(folder / "state"), "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    status = json.loads(done.stdout)
    return Measured(
        command=" ".join(str(argument) for argument in arguments).replace(str(folder), "…"),
        seconds=round(seconds, 1),
        rows=status["counts"]["rows_in"],
        rows_kept=status["counts"]["rows_kept"],
        rows_per_second=status["rows_per_second"],
    )


def _digests(output: Path) -> dict[str, str]:
    files = [file for kind in ("data", "scores") for file in (output / kind).rglob("*.parquet")]
    return {str(file.relative_to(output)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


if __name__ == "__main__":
    cli()
