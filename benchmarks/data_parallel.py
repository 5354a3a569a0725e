"""Data parallel by the queue: two workers of one thread each against one worker of one thread. Writes a results file.

Each measurement has a Redis and workers of its own, which have loaded their model before the run is enqueued.
Example: python -m benchmarks.data_parallel --rounds 3
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.results_file import provenance_of, write_results
from benchmarks.scorer.case import Model as Shape
from benchmarks.scorer.models import read_tokenizer, save_model
from fleet.ledger import Ledger
from fleet.presence.announcements import list_workers
from fleet.process.broker import make_app
from fleet.process.children import Child, running
from fleet.process.settings import Settings
from producer.local.demo_data import write_shards
from producer.local.redis import embedded_redis
from producer.planning.enqueue import enqueue
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run
from worker.training.base_model import verified_demo_encoder

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_WORKERS = (1, 2)
_LONGEST_SECONDS = 600.0


@cli.command()
def data_parallel(
    shards: Annotated[int, typer.Option(min=2)] = 16,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each shard.")] = 16,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Score the same shards with one worker and with two, in turns. The model has MiniLM's shape and random weights."""
    found, before = provenance_of("benchmarks.data_parallel"), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name:
        folder = Path(name)
        model = save_model(Shape.MINILM, folder / "model", tokenizer=read_tokenizer(str(verified_demo_encoder())))
        write_shards(folder / "shards", shards=shards, rows=rows, seed=1)
        measured = [
            {
                workers: _seconds(workers, model, folder / "shards", folder / f"{number}-{workers}")
                for workers in _WORKERS
            }
            for number in range(rounds)
        ]
    ratios = [one[1] / one[2] for one in measured]
    report = {
        "rows": shards * rows,
        "seconds": {f"{workers} workers": [round(one[workers], 2) for one in measured] for workers in _WORKERS},
        "times_the_rows_per_second_of_one_worker": {
            "median": round(median(ratios), 3),
            "rounds": [round(ratio, 3) for ratio in ratios],
        },
        "load_average": {"before": before, "after": os.getloadavg(), "of cores": os.cpu_count()},
    }
    file = write_results("data-parallel", found, report, output)
    typer.echo(f"Two workers score {median(ratios):.2f} times the rows per second of one; rounds: {ratios}. {file}")


def _seconds(workers: int, model: Path, shards: Path, folder: Path) -> float:
    """From the moment at which the run is enqueued to its last finished shard."""
    with ExitStack() as stack:
        settings = Settings(redis_url=stack.enter_context(embedded_redis(folder / "redis")))
        ledger = Ledger.connect(settings)
        for number in range(workers):
            stack.enter_context(_worker(f"w{number}", model, settings, folder))
        _wait(lambda: sum(one.activity == "ready" for one in list_workers(ledger.redis)) == workers, pause=0.2)
        plan = plan_run(
            RunOptions(
                input_uris=(str(shards),),
                models=(str(model),),
                dtype="float32",
                keep_all=True,
                output_uri=str(folder / "output"),
            )
        )
        app = stack.enter_context(make_app("benchmark", settings))
        began = time.monotonic()
        run_id = enqueue(plan, ledger, app, resend_seconds=60).run_id
        _wait(lambda: ledger.counts(run_id).done == len(plan.shards), pause=0.02)
        return time.monotonic() - began


def _worker(name: str, model: Path, settings: Settings, folder: Path) -> AbstractContextManager[Child]:
    environment = {
        "REDIS_URL": str(settings.redis_url),
        "SHARDSIFT_MODEL": str(model),
        "SHARDSIFT_DTYPE": "float32",
        "SHARDSIFT_DEVICE": "cpu",
        "SHARDSIFT_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "SHARDSIFT_PARITY_ROWS": "0",
        "HF_HUB_OFFLINE": "1",
    }
    command = [str(Path(sys.executable).parent / "worker"), "serve", "--name", name]
    return running(command, log=folder / f"{name}.log", stop_seconds=15, environment=environment)


def _wait(is_so: Callable[[], bool], *, pause: float) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit("The workers took too long.")
        time.sleep(pause)


if __name__ == "__main__":
    cli()
