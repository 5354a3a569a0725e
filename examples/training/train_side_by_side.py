"""Train the same model on the same rows in several ways; print losses, figures and seconds, and stop if the losses differ.

All ways begin with the same weights and see the rows in the same order, without dropout. In float32 they end with the same loss.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.utils.data import DataLoader, RandomSampler
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, set_seed

from producer.local.demo_data import write_labelled
from worker.scoring.quiet import quiet_transformers
from worker.training.base_model import verified_demo_encoder
from worker.training.place import TrainPlace
from worker.training.spec import FullTraining, TrainSpec
from worker.training.train import train

TOLERANCE = 1e-3  # of a loss in float32, as a share of it
HELD_OUT = 0.2
AT_THE_END = 10**9  # steps between two checkpoints: one is saved and measured at the end alone


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of the held-out rows."""

    loss: float
    accuracy: float
    f1: float  # mean over the classes


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to train. The losses of all exact ways should be equal."""

    name: str
    train: Callable[[], Figures]
    dtype: str = "float32"
    is_exact: bool = True


@dataclass(frozen=True, kw_only=True)
class Timed:
    """How a way ended, and what it took."""

    figures: Figures
    seconds: float
    cpu_seconds: float  # other load on the machine hardly changes it


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the ways have in common. A row has `text` and `label`, the number of a class."""

    folder: Path
    learned: list[dict[str, Any]]
    held_out: list[dict[str, Any]]
    tokenizer: Any
    device: str
    epochs: int
    learning_rate: float
    max_tokens: int

    def new_model(self) -> Any:
        """The model with its first weights."""
        with quiet_transformers():
            model = AutoModelForSequenceClassification.from_pretrained(self.folder / "start")
        return model.to(self.device).train()

    def order(self, epoch: int) -> RandomSampler:
        """The order in which transformers' Trainer takes the rows."""
        return RandomSampler(self.learned, generator=torch.Generator().manual_seed(epoch))

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch, padded to its longest text."""
        texts = [row["text"] for row in rows]
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        return {**batch, "labels": torch.tensor([row["label"] for row in rows])}

    def batches(self, rows: int, epoch: int) -> DataLoader:
        return DataLoader(self.learned, batch_size=rows, sampler=self.order(epoch), collate_fn=self.collate)

    def on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: values.to(self.device, non_blocking=True) for name, values in batch.items()}

    def figures_of(self, model: Any, half: torch.dtype | None = None) -> Figures:
        """Measured in half precision, if that is named."""
        model.eval()
        logits, labels = [], []
        for batch in DataLoader(self.held_out, batch_size=32, collate_fn=self.collate):
            labels.append(batch.pop("labels"))
            with torch.no_grad(), torch.autocast(self.device, dtype=half, enabled=half is not None):
                logits.append(model(**self.on_device(batch)).logits.float().cpu())
        scores, truth = torch.cat(logits), torch.cat(labels)
        chosen = scores.argmax(dim=1)
        return Figures(
            loss=torch.nn.functional.cross_entropy(scores, truth).item(),
            accuracy=accuracy_score(truth, chosen),
            f1=f1_score(truth, chosen, average="macro"),
        )


def arguments(page: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder, or a name on the Hub; default: the demo's MiniLM")
    parser.add_argument("--data", help="a Parquet file with labelled texts; default: texts of the demo")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--label-column", default="label", help="its values are classes")
    parser.add_argument("--rows", type=int, default=300, help="a fifth of them is held out")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--report", type=Path, help="a JSON file to write")
    return parser.parse_args()


def prepared(given: argparse.Namespace) -> Case:
    """Write the rows and the model's first weights to a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="shardsift-example-"))
    if given.data is None:
        given.data, given.label_column = folder / "demo.parquet", "kind"
        write_labelled(given.data, rows=given.rows, seed=0)
    frame = pd.read_parquet(given.data, columns=[given.text_column, given.label_column]).head(given.rows)
    labels = frame[given.label_column].astype("category").cat.codes.astype("int64")
    rows = pd.DataFrame({"text": frame[given.text_column], "label": labels}).sample(frac=1, random_state=0)
    held = round(HELD_OUT * len(rows))
    rows[:held].to_parquet(folder / "held_out.parquet", index=False)
    rows[held:].to_parquet(folder / "learned.parquet", index=False)
    _save_start(given.model or verified_demo_encoder(), folder / "start", classes=int(labels.max()) + 1)
    return Case(
        folder=folder,
        learned=rows[held:].to_dict("records"),
        held_out=rows[:held].to_dict("records"),
        tokenizer=AutoTokenizer.from_pretrained(folder / "start"),
        device="cuda" if torch.cuda.is_available() else "cpu",
        epochs=given.epochs,
        learning_rate=given.learning_rate,
        max_tokens=given.max_tokens,
    )


def ours(case: Case, *, dtype: str = "float32", loader_processes: int = 0, **options: int) -> Way:
    """`worker train --full` with these options, from a file of rows to a model folder with card and pictures."""
    typed = {
        "batch_rows": "--batch-rows",
        "accumulation_steps": "--accumulate",
        "loader_processes": "--loader-processes",
    }
    given = {**options, "loader_processes": loader_processes}
    name = " ".join(f"{typed[option]} {value}" for option, value in given.items() if value)
    spec = TrainSpec(
        data_uri=str(case.folder / "learned.parquet"),
        validation_uri=str(case.folder / "held_out.parquet"),
        task="classification",
        base_model=str(case.folder / "start"),
        output_uri=str(case.folder / f"trained {name} {dtype}"),
        dtype=dtype,
        max_tokens=case.max_tokens,
        full=FullTraining(
            epochs=case.epochs,
            learning_rate=case.learning_rate,
            weight_decay=0.0,
            warmup_share=0.0,
            checkpoint_steps=AT_THE_END,
            **options,
        ),
    )

    def trained() -> Figures:
        report = train(spec, TrainPlace(device=case.device, loader_processes=loader_processes))
        macro = report.held_out.macro
        return Figures(loss=report.steps.losses[-1]["eval_loss"], accuracy=macro.accuracy, f1=macro.f1)

    return Way(name=f"worker train --full {name}", train=trained, dtype=dtype, is_exact=dtype == "float32")


def compare(given: argparse.Namespace, case: Case, *ways: Way) -> None:
    """Train in each way and print a line for it. The first is the one that you come from, to which the others are compared."""
    try:
        timed = [_timed(way) for way in ways]
    finally:
        shutil.rmtree(case.folder)
    exact = next(one.figures.loss for way, one in zip(ways, timed, strict=True) if way.is_exact)
    lines = [
        {
            "way": way.name,
            "dtype": way.dtype,
            "is_exact": way.is_exact,
            "seconds": one.seconds,
            "cpu_seconds": one.cpu_seconds,
            "ratio": timed[0].seconds / one.seconds,
            **asdict(one.figures),
            "difference": abs(one.figures.loss - exact) / exact,
        }
        for way, one in zip(ways, timed, strict=True)
    ]
    print(f"{len(case.learned)} rows learned, {len(case.held_out)} held out, {case.epochs} epochs, on {case.device}")
    for line in lines:
        print(
            "{way:<57} {dtype:<9} {seconds:>7.1f} s {ratio:>5.2f} x  loss {loss:.4f}, {difference:7.0e} off  "
            "accuracy {accuracy:.1%}  F1 {f1:.3f}".format(**line)
        )
    if given.report:
        given.report.write_text(json.dumps(lines))
    if wrong := [line["way"] for line in lines if line["is_exact"] and line["difference"] > TOLERANCE]:
        sys.exit(f"The loss of {wrong[0]} differs from that of the first exact way.")


def _timed(way: Way) -> Timed:
    began, cpu_began = time.perf_counter(), _cpu_seconds()
    figures = way.train()
    return Timed(figures=figures, seconds=time.perf_counter() - began, cpu_seconds=_cpu_seconds() - cpu_began)


def _cpu_seconds() -> float:
    """Of all threads of this process, and of its child processes that have ended."""
    return sum(os.times()[:4])


def _save_start(model: str, folder: Path, *, classes: int) -> None:
    """A new last layer, and no dropout, which would draw other random numbers in each way."""
    set_seed(0)
    config = AutoConfig.from_pretrained(model).to_dict()
    still = {name: 0.0 for name, value in config.items() if "dropout" in name and isinstance(value, float)}
    with quiet_transformers():
        start = AutoModelForSequenceClassification.from_pretrained(
            model, num_labels=classes, ignore_mismatched_sizes=True, dtype=torch.float32, **still
        )
        start.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
