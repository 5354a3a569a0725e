"""What `producer status` says while a run of even shards goes on, against how the run ended: time left, cost and phases.

Two commands serve a real Redis, and the run is scored by a MiniLM. Writes a results file.
Example: python -m benchmarks.estimates --shards 24 --rows 1000
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.refilter import minilm
from benchmarks.results_file import provenance_of, write_results
from fleet.ledger import Ledger
from fleet.process.command_line import own_command
from fleet.process.settings import Settings
from producer.local.demo_data import write_shards
from producer.local.redis import embedded_redis
from producer.status import RunStatus, run_status

_PRICE = 2.0  # per GPU-hour
_SHARES = (0.25, 0.5, 0.75)  # of the run's time, at which its estimate is looked at
_PATIENCE_SECONDS = 1800

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the status said at a time. All in seconds, from the first claim."""

    at: float
    low: float
    high: float
    cost_to_come: float


@cli.command()
def estimates(
    shards: Annotated[int, typer.Option(min=4, help="Of equal size.")] = 24,
    rows: Annotated[int, typer.Option(min=1, help="In each shard.")] = 1000,
    workers: Annotated[int, typer.Option(min=1)] = 2,
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Start a fleet, look at the run each second until it is done, and compare."""
    found = provenance_of("benchmarks.estimates")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        write_shards(folder / "shards", shards=shards, rows=rows, seed=1)
        url = stack.enter_context(embedded_redis(folder / "redis"))
        ledger = Ledger.connect(Settings(redis_url=url))
        run_id = _enqueued(folder, url, minilm(folder / "minilm"))
        stack.enter_context(_serving(folder, url, "producer", "finalizer"))
        stack.enter_context(_serving(folder, url, "worker", "start", "--workers", str(workers)))
        looks, last = _watched(ledger, run_id)
        report: dict[str, object] = {
            "shards": shards,
            "rows_of_a_shard": rows,
            "workers": workers,
            "seconds": round(last.counts.seconds, 1),
        }
        report |= {
            "time_left": _time_left(looks, last),
            "cost": _cost(looks, last, ledger),
            "phases": _phases(last, ledger),
        }
    typer.echo(write_results("estimates", found, report, output).read_text())


def _enqueued(folder: Path, redis_url: str, model: Path) -> str:
    arguments = ("enqueue", "--input", folder / "shards", "--model", model, "--output", folder / "kept", "--keep-all")
    command = own_command("producer", *map(str, arguments))
    done = subprocess.run(command, env=_environment(folder, redis_url), capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


@contextmanager
def _serving(folder: Path, redis_url: str, *command: str) -> Iterator[None]:
    log = (folder / f"{command[0]}.log").open("w")
    process = subprocess.Popen(own_command(*command), env=_environment(folder, redis_url), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        log.close()


def _environment(folder: Path, redis_url: str) -> dict[str, str]:
    return {**os.environ, "REDIS_URL": redis_url, "SHARDSIFT_STATE_DIR": str(folder / "state"), "HF_HUB_OFFLINE": "1"}


def _watched(ledger: Ledger, run_id: str) -> tuple[list[Look], RunStatus]:
    looks: list[Look] = []
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        status = run_status(ledger, run_id, price_per_gpu_hour=_PRICE)
        if status.is_published:
            return looks, status
        if status.remaining and status.cost and status.cost.to_come is not None:
            left, cost = status.remaining, status.cost.to_come
            looks.append(Look(at=status.counts.seconds, low=left.low, high=left.high, cost_to_come=cost))
        time.sleep(1)
    raise SystemExit(f"The run did not end: {run_status(ledger, run_id)}")


def _time_left(looks: Sequence[Look], last: RunStatus) -> dict[str, object]:
    """Error of the middle of the range, as a share of the time that was really left, and how often the range was right."""
    took = last.counts.seconds
    after = [look for look in looks if look.at >= took / 4]
    within = [look for look in after if look.low <= took - look.at <= look.high]
    return {
        "error_after": {f"{share:.0%}": _error(_look_at(looks, share * took), took) for share in _SHARES},
        "range_held_the_truth": round(len(within) / len(after), 3),
        "looks_after_a_quarter": len(after),
    }


def _look_at(looks: Sequence[Look], at: float) -> Look:
    return next(look for look in looks if look.at >= at)


def _error(look: Look, took: float) -> float:
    left = took - look.at
    return round(((look.low + look.high) / 2 - left) / left, 3)


def _cost(looks: Sequence[Look], last: RunStatus, ledger: Ledger) -> dict[str, float]:
    """The cost that the status says, against the price of the time in which the receipts say that workers had shards."""
    made = [receipt.provenance for receipt in ledger.receipts(last.run_id)]
    seconds = sum(one.finished_at - one.started_at for one in made)
    cost = last.cost
    assert cost is not None
    quarter = _look_at(looks, last.counts.seconds / 4)
    return {
        "said_at_the_end": round(cost.so_far, 5),
        "of_the_receipts": round(seconds / 3600 * _PRICE, 5),
        "ratio": round(cost.so_far / (seconds / 3600 * _PRICE), 4),
        "to_come_said_after_a_quarter": round(quarter.cost_to_come, 5),
    }


def _phases(last: RunStatus, ledger: Ledger) -> dict[str, object]:
    """The sum of the phases against the time from the beginning to the end of each attempt."""
    made = [receipt.provenance for receipt in ledger.receipts(last.run_id)]
    wall = sum(one.finished_at - one.started_at for one in made)
    return {
        "sum_seconds": round(sum(last.phase_seconds.values()), 2),
        "wall_seconds": round(wall, 2),
        "ratio": round(sum(last.phase_seconds.values()) / wall, 4),
        "largest_error_of_a_shard": round(
            max(abs(sum(one.seconds.values()) / (one.finished_at - one.started_at) - 1) for one in made), 4
        ),
        "seconds": {phase: round(seconds, 2) for phase, seconds in last.phase_seconds.items()},
    }


if __name__ == "__main__":
    cli()
