"""What `worker train` saves: embeddings computed once against the Trainer with a frozen encoder, and bfloat16 against float32.

Example: python -m benchmarks.training --rows 400

The texts are those of the demo and the encoder is its MiniLM, because this runs offline. All ways learn from the same rows, and
are measured on the same held-out rows.
"""

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainingArguments

from benchmarks.results_file import provenance_of, write_results
from fleet.label_source import label_source
from fleet.training import FullTraining, TrainSpec
from producer.demo.shards import write_labelled
from worker.training.base_model import load_base
from worker.training.demo_encoder import DEMO_ENCODER, verified_demo_encoder
from worker.training.loss import loss_of
from worker.training.metrics import Metrics, measure
from worker.training.place import TrainPlace
from worker.training.splits import read_split
from worker.training.token_rows import TokenRows, tokenizer_of
from worker.training.train import train

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_Moment = tuple[float, float]  # on the clock, and of the CPU
_BATCH_ROWS = 32
_HEAD_RATE, _FULL_RATE = 1e-2, 1e-4  # learning rates: of a new layer alone, and of all


@cli.command()
def training(
    rows: Annotated[int, typer.Option(min=20, help="Labelled texts, a fifth of which are held out.")] = 400,
    max_tokens: Annotated[int, typer.Option(min=3)] = 128,
    head_epochs: Annotated[int, typer.Option(min=1, help="Of the head in the Trainer.")] = 10,
    full_epochs: Annotated[int, typer.Option(min=1, help="Of all weights.")] = 1,
    device: Annotated[str, typer.Option()] = "cpu",
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Train the same head in both ways, then all weights in both number formats, one after the other."""
    found = provenance_of("benchmarks.training")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name:
        folder = Path(name)
        write_labelled(folder / "labelled.parquet", rows=rows, seed=0)
        spec = TrainSpec(
            data_uri=str(folder / "labelled.parquet"),
            base_model=DEMO_ENCODER,
            output_uri=str(folder / "embedded"),
            max_tokens=max_tokens,
            dtype="float32",
        )
        ways = [_embedded_once(spec, device), _head_in_trainer(spec, head_epochs, device, folder)]
        ways += [_all_weights(spec, dtype, full_epochs, device, folder) for dtype in ("float32", "bfloat16")]
    report = {"rows": rows, "max_tokens": max_tokens, "ways": ways}
    write_results("training-minilm", found, report, output)
    typer.echo(_table(ways))


def _now() -> _Moment:
    return time.perf_counter(), time.process_time()


def _embedded_once(spec: TrainSpec, device: str) -> dict[str, Any]:
    began = _now()
    report = train(spec, TrainPlace(device=device))
    assert report is not None
    return _way("head, embeddings computed once", began, report.held_out, epochs=1)


def _head_in_trainer(spec: TrainSpec, epochs: int, device: str, folder: Path) -> dict[str, Any]:
    """The encoder computes every text again in every epoch."""
    began = _now()
    split = read_split(spec, label_source(spec))
    base = load_base(verified_demo_encoder(), None, split.target)
    base.model.base_model.requires_grad_(False)
    tokenizer = tokenizer_of(base, spec.max_tokens)
    trainer = Trainer(
        model=base.model,
        args=TrainingArguments(
            output_dir=str(folder / "trainer"),
            per_device_train_batch_size=_BATCH_ROWS,
            per_device_eval_batch_size=_BATCH_ROWS,
            num_train_epochs=epochs,
            learning_rate=_HEAD_RATE,
            use_cpu=device == "cpu",
            dataloader_pin_memory=device != "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=TokenRows(split.learned, split.target, tokenizer),
        data_collator=DataCollatorWithPadding(base.tokenizer),
        compute_loss_func=loss_of(split.target, split.learned.targets, spec.class_weights),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    logits = np.asarray(trainer.predict(TokenRows(split.held_out, split.target, tokenizer)).predictions)
    metrics = measure(logits, split.held_out.targets, split.target, threshold=spec.threshold)
    return _way("head, Trainer with a frozen encoder", began, metrics, epochs=epochs)


def _all_weights(spec: TrainSpec, dtype: Any, epochs: int, device: str, folder: Path) -> dict[str, Any]:
    began = _now()
    full = FullTraining(epochs=epochs, batch_rows=_BATCH_ROWS, learning_rate=_FULL_RATE)
    changed = dataclasses.replace(spec, dtype=dtype, full=full, output_uri=str(folder / dtype))
    report = train(changed, TrainPlace(device=device))
    assert report is not None
    assert report.steps is not None
    more = {"rows_per_second": report.rows_per_second, "losses": report.steps.losses}
    return _way(f"all weights, {dtype}", began, report.held_out, epochs=epochs) | more


def _way(name: str, began: _Moment, metrics: Metrics, *, epochs: int) -> dict[str, Any]:
    assert metrics.at_threshold is not None
    return {
        "way": name,
        "seconds": time.perf_counter() - began[0],
        "cpu_seconds": time.process_time() - began[1],  # of all threads: other load on the machine hardly changes it
        "epochs": epochs,
        "mae": metrics.mae,
        "accuracy": metrics.at_threshold.accuracy,
        "f1": metrics.at_threshold.f1,
    }


def _table(ways: list[dict[str, Any]]) -> str:
    """For docs/training.md. The ratio of CPU seconds is to the first of each two ways."""
    lines = [
        f"| {way['way']} | {way['epochs']} | {way['seconds']:.0f} | {way['cpu_seconds']:.0f} | "
        f"{way['cpu_seconds'] / first['cpu_seconds']:.2f} | "
        f"{way['mae']:.3f} | {way['accuracy']:.1%} | {way['f1']:.3f} |"
        for pair in (ways[:2], ways[2:])
        for first in pair[:1]
        for way in pair
    ]
    head = "| way | epochs | seconds | CPU seconds | × the first | MAE | accuracy | F1 |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|", *lines])


if __name__ == "__main__":
    cli()
