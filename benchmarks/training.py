"""What `worker train` saves: embeddings computed once against the Trainer with a frozen encoder, and bfloat16 against float32.

Example: python -m benchmarks.training --rows 1000

The texts are those of the demo and the encoder is its MiniLM, since this runs offline. All ways learn from the same rows, and are
measured on the same held-out rows in float32. A difference of two errors has its standard error, over the held-out rows.
"""

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import torch
import typer

import shardsift
from benchmarks.frozen_trainer import Floats, Goal, TrainedHead, best_of, train_head, try_rates
from benchmarks.results_file import provenance_of, write_results
from benchmarks.spent import Spent, spent
from producer.local.demo_data import write_labelled
from worker.training.base_model import verified_demo_encoder
from worker.training.labels import label_source
from worker.training.options import TrainOptions
from worker.training.report import TrainReport, measure
from worker.training.rows import Split, read_split
from worker.training.train import train

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_HELD_OUT_SHARE = 5  # one row of so many
_FULL_RATE = 1e-4  # learning rate of all weights
_CHECKS = 6  # evaluations of a training of all weights


@cli.command()
def training(
    rows: Annotated[int, typer.Option(min=50, help="Labelled texts, a fifth of which are held out.")] = 1000,
    max_tokens: Annotated[int, typer.Option(min=3)] = 64,
    most_epochs: Annotated[int, typer.Option(min=1, help="Of the head in the Trainer.")] = 30,
    full_epochs: Annotated[int, typer.Option(min=1, help="Of all weights.")] = 3,
    full_batch_rows: Annotated[int, typer.Option(min=1, help="Of a step of all weights.")] = 8,
    device: Annotated[str, typer.Option()] = "cpu",
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Train the same head in both ways, then all weights in both number formats, one after the other."""
    found = provenance_of("benchmarks.training")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name:
        spec = _spec(Path(name), rows, max_tokens)
        split = read_split(spec, label_source(spec))
        heads = _heads(spec, split, most_epochs, device, Path(name))
        full = replace(spec, full=True, epochs=full_epochs, batch_rows=full_batch_rows, learning_rate=_FULL_RATE)
        formats = _formats(full, split, device)
    case = {
        "rows_learned": len(split.learned),
        "rows_held_out": len(split.held_out),
        "max_tokens": max_tokens,
        "threads": torch.get_num_threads(),
    }
    write_results("training-minilm", found, {**case, **heads, "all_weights": formats}, output)
    typer.echo(_table([heads["ways"], formats]))


def _spec(folder: Path, rows: int, max_tokens: int) -> TrainOptions:
    write_labelled(folder / "labelled.parquet", rows=rows, seed=0)
    labelled = pq.read_table(folder / "labelled.parquet")
    held = rows // _HELD_OUT_SHARE
    pq.write_table(labelled[:held], folder / "held_out.parquet")
    pq.write_table(labelled[held:], folder / "learned.parquet")
    return TrainOptions(
        data=str(folder / "learned.parquet"),
        validation=str(folder / "held_out.parquet"),
        base_model=verified_demo_encoder(),
        output=str(folder / "embedded"),
        max_tokens=max_tokens,
        dtype="float32",
    )


def _heads(spec: TrainOptions, split: Split, most_epochs: int, device: str, folder: Path) -> dict[str, Any]:
    """The rates are tried before the Trainer's clock starts, and on the rows that it is measured on: both are in its favour."""
    _warm_up(spec, device)
    report, time = _trained(spec, device)
    cached = _scores(spec, split, device)
    goal = Goal(errors=np.abs(cached - split.held_out.targets))
    tried = try_rates(spec, split, goal, most_epochs=most_epochs, device=device)
    best = best_of(tried)
    head = train_head(spec, split, goal, rate=best.rate, most_epochs=most_epochs, device=device, folder=folder)
    ways = [
        _way("head, embeddings computed once", time, cached, split, goal)
        | {"epochs": 1, "speed": report.rows_per_second},
        _way("head, Trainer with a frozen encoder", head.time, head.scores, split, goal) | _how(head),
    ]
    return {"ways": ways, "rates_tried_on_embeddings": [asdict(one) for one in tried]}


def _how(head: TrainedHead) -> dict[str, Any]:
    return {
        "epochs": head.epochs,
        "rate": head.rate,
        "as_good_within_noise": head.reached,
        "evaluations_not_counted": asdict(head.evaluations),
    }


def _formats(spec: TrainOptions, split: Split, device: str) -> list[dict[str, Any]]:
    steps = -(-len(split.learned) // spec.batch_rows) * int(spec.epochs)
    ways: list[dict[str, Any]] = []
    goal = None
    for dtype in ("float32", "bfloat16"):
        changed = replace(spec, dtype=dtype, checkpoint_steps=max(1, steps // _CHECKS), output=f"{spec.output}-{dtype}")
        report, time = _trained(changed, device)
        assert report.steps is not None
        scores = _scores(changed, split, device)
        goal = goal or Goal(errors=np.abs(scores - split.held_out.targets))
        more = {
            "epochs": spec.epochs,
            "steps": report.steps.done,
            "batch_rows": spec.batch_rows,
            "rows_per_second": report.rows_per_second,
            "losses": report.steps.losses,
        }
        ways.append(_way(f"all weights, {dtype}", time, scores, split, goal) | more)
    return ways


def _warm_up(spec: TrainOptions, device: str) -> None:
    """What a first training takes in addition, such as to import scikit-learn and matplotlib."""
    _trained(replace(spec, output=f"{spec.output}-first", max_tokens=8), device)


def _trained(spec: TrainOptions, device: str) -> tuple[TrainReport, Spent]:
    began = spent()
    report = train(spec, device=device)
    assert report is not None
    return report, spent() - began


def _scores(spec: TrainOptions, split: Split, device: str) -> Floats:
    """Of the held-out rows by the saved model, in float32."""
    scorer = shardsift.load_scorer(spec.output, dtype="float32", device=device, parity_rows=0)
    return scorer.score(split.held_out.texts.to_pylist(), max_tokens=spec.max_tokens)


def _way(name: str, time: Spent, scores: Floats, split: Split, goal: Goal) -> dict[str, Any]:
    targets = split.held_out.targets
    metrics = measure(scores[:, None], targets, split.target, threshold=3.0)
    more, uncertain = goal.excess(np.abs(scores - targets))
    assert metrics.at_threshold is not None
    return {
        "way": name,
        "seconds": time.seconds,
        "cpu_seconds": time.cpu_seconds,
        "mae": metrics.mae,
        "mae_above_the_first": {"difference": more, "standard_error": uncertain},
        "accuracy": metrics.at_threshold.accuracy,
        "f1": metrics.at_threshold.f1,
    }


def _table(pairs: list[list[dict[str, Any]]]) -> str:
    """For docs/training.md. The ratio of CPU seconds is to the first of each two ways."""
    lines = [
        f"| {way['way']} | {way['epochs']} | {way['seconds']:.0f} | {way['cpu_seconds']:.0f} | "
        f"{way['cpu_seconds'] / pair[0]['cpu_seconds']:.2f} | {way['mae']:.3f} | {_difference(way)} | "
        f"{way['accuracy']:.1%} | {way['f1']:.3f} |"
        for pair in pairs
        for way in pair
    ]
    head = "| way | epochs | seconds | CPU seconds | × the first | MAE | above the first | accuracy | F1 |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|---:|", *lines])


def _difference(way: dict[str, Any]) -> str:
    found = way["mae_above_the_first"]
    return f"{found['difference']:+.3f} ± {found['standard_error']:.3f}"


if __name__ == "__main__":
    cli()
