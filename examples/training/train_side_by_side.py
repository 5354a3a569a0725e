"""Train the same model on the same rows in several ways; print losses, accuracies and seconds, and stop if the losses differ.

All ways begin with the same weights and see the rows in the same order, without dropout. In float32 they end with the same loss.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

import shardsift

TOLERANCE = 1e-3  # relative difference of two losses in float32
AT_THE_END = 10**9  # steps between two checkpoints, so that only the last step saves and measures one
EPOCHS, MAX_TOKENS = 2, 64


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to train.

    `train` returns loss and accuracy on the held-out rows. All exact ways should have equal losses.
    """

    name: str
    train: Callable[[], tuple[float, float]]
    dtype: str = "float32"
    is_exact: bool = True


class Case:
    """The common part of all ways: rows with `text` and `label` (the number of a class), and the first weights."""

    def __init__(self, page: str) -> None:
        parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--model", required=True, help="a folder, or a name on the Hub")
        parser.add_argument("--data", required=True, help="a Parquet file with labelled texts in the column `text`")
        parser.add_argument("--label-column", default="label", help="its values are classes")
        parser.add_argument("--learning-rate", type=float, default=1e-4)
        parser.add_argument("--report", type=Path, help="a JSON file to write")
        self.given = parser.parse_args()
        self.folder = Path(tempfile.mkdtemp(prefix="shardsift-example-"))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        frame = pd.read_parquet(self.given.data)
        labels = frame[self.given.label_column].astype("category").cat.codes.astype("int64")
        rows = pd.DataFrame({"text": frame["text"], "label": labels}).sample(frac=1, random_state=0)
        for name, part in (("held_out", rows[: len(rows) // 5]), ("learned", rows[len(rows) // 5 :])):
            part.to_parquet(self.folder / f"{name}.parquet", index=False)
            setattr(self, name, part.to_dict("records"))
        # Without dropout, because it would draw different random numbers in each way.
        config = AutoConfig.from_pretrained(self.given.model, num_labels=int(labels.max()) + 1)
        config.update({name: 0.0 for name, value in config.to_dict().items() if "dropout" in name and value})
        start = AutoModelForSequenceClassification.from_pretrained(
            self.given.model, config=config, ignore_mismatched_sizes=True, dtype=torch.float32
        )
        start.save_pretrained(self.folder / "start")
        self.tokenizer = AutoTokenizer.from_pretrained(self.given.model)
        self.tokenizer.save_pretrained(self.folder / "start")

    def begin(self, steps_per_epoch: int) -> tuple[Any, torch.optim.Optimizer, Any]:
        """Return the model with its first weights, an optimizer, and a schedule that warms up in the first steps."""
        model = AutoModelForSequenceClassification.from_pretrained(self.folder / "start").to(self.device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.given.learning_rate, weight_decay=0.0)
        steps = EPOCHS * steps_per_epoch
        return model, optimizer, get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)

    def order(self, epoch: int) -> RandomSampler:
        """Return a sampler with the order in which transformers' Trainer takes the rows."""
        return RandomSampler(self.learned, generator=torch.Generator().manual_seed(epoch))

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        texts = [row["text"] for row in rows]
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        return {**batch, "labels": torch.tensor([row["label"] for row in rows])}

    def batches(self, rows: int, epoch: int) -> DataLoader:
        return DataLoader(self.learned, batch_size=rows, sampler=self.order(epoch), collate_fn=self.collate)

    def on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: values.to(self.device, non_blocking=True) for name, values in batch.items()}

    def measured(self, model: Any, half: torch.dtype | None = None) -> tuple[float, float]:
        """Return loss and accuracy on the held-out rows, in half precision if `half` names a type."""
        batch = self.on_device(self.collate(self.held_out))
        with torch.no_grad(), torch.autocast(self.device, dtype=half, enabled=half is not None):
            found = model.eval()(**batch)
        right = found.logits.argmax(dim=1) == batch["labels"]
        return found.loss.item(), right.float().mean().item()

    def ours(self, *, dtype: str = "float32", **options: int) -> Way:
        """Return a way that runs `worker train --full` with these options.

        Its time includes writing the model, card and picture.
        """
        name = " ".join(f"--{option.replace('_', '-')} {value}" for option, value in options.items())

        def train() -> tuple[float, float]:
            report = shardsift.train(
                data=self.folder / "learned.parquet",
                validation=self.folder / "held_out.parquet",
                task="classification",
                base_model=self.folder / "start",
                output=self.folder / f"trained {name} {dtype}",
                full=True,
                epochs=EPOCHS,
                learning_rate=self.given.learning_rate,
                max_tokens=MAX_TOKENS,
                checkpoint_steps=AT_THE_END,
                dtype=dtype,
                progress=False,
                **options,
            )
            return report.steps.losses[-1]["eval_loss"], report.held_out.macro.accuracy

        return Way(name=f"worker train --full {name}", train=train, dtype=dtype, is_exact=dtype == "float32")

    def compare(self, *ways: Way) -> None:
        """Train in each way, and print a line for it. Exits with an error if the losses of the exact ways differ."""
        lines: list[dict[str, Any]] = []
        for way in ways:
            began = time.perf_counter()
            loss, accuracy = way.train()
            seconds = time.perf_counter() - began
            lines.append({"way": way.name, "is_exact": way.is_exact, "dtype": way.dtype, "loss": loss})
            lines[-1] |= {"accuracy": accuracy, "seconds": seconds}
            print(f"{way.name:<57} {way.dtype:<9} {seconds:>7.1f} s  loss {loss:.4f}  accuracy {accuracy:.1%}")
        if self.given.report:
            self.given.report.write_text(json.dumps(lines))
        losses = [line["loss"] for line in lines if line["is_exact"]]
        if max(losses) - min(losses) > TOLERANCE * min(losses):
            sys.exit("The losses of the exact ways differ.")
