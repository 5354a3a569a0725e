"""Train a new last layer in transformers' Trainer, with the encoder frozen, until it is as good as another head.

Each epoch computes all texts again. Dropout is 0, as in FineWeb-Edu's script. The learning rate is the best of several, which are
tried on stored embeddings: the encoder is frozen, so the Trainer takes the same steps.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import RandomSampler
from transformers import (
    DataCollatorWithPadding,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from benchmarks.spent import Spent, spent
from worker.training.base_model import BaseModel, load_base
from worker.training.frozen import embeddings_of, load_embedder
from worker.training.full import TokenRows, loss_of, tokenizer_of
from worker.training.options import TrainOptions
from worker.training.rows import Rows, Split

Floats = NDArray[np.floating]
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
BATCH_ROWS = 32
_MOST_NORM = 1.0  # of a gradient, the Trainer's default
_PATIENCE = 5  # epochs without progress


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The absolute errors of another head on the held-out rows."""

    errors: Floats

    def excess(self, errors: Floats) -> tuple[float, float]:
        """How much larger the mean absolute error is, and the standard error of that."""
        difference = errors - self.errors
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))

    def is_reached(self, errors: Floats) -> bool:
        """Whether it is larger by no more than its standard error."""
        more, uncertain = self.excess(errors)
        return more <= uncertain


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A learning rate, with the epochs after which its head was as good, or at its best."""

    rate: float
    epochs: int
    mae: float
    reached: bool


@dataclass(frozen=True, kw_only=True)
class TrainedHead:
    scores: Floats  # of the held-out rows
    rate: float
    epochs: int
    reached: bool
    time: Spent  # without the evaluations
    evaluations: Spent


def try_rates(spec: TrainOptions, split: Split, goal: Goal, *, most_epochs: int, device: str) -> list[Tried]:
    """Train heads on stored embeddings by the steps that the Trainer would take."""
    embedder = load_embedder(lambda: _base(spec, split), dtype=spec.dtype, device=device)
    learned, held_out = (
        torch.from_numpy(embeddings_of(rows.texts, embedder, max_tokens=spec.max_tokens, tell=lambda line: None))
        for rows in (split.learned, split.held_out)
    )
    base = _base(spec, split)
    first = base.model.get_submodule(base.head)
    return [_try(rate, copy.deepcopy(first), learned, held_out, split, goal, most_epochs) for rate in RATES]


def best_of(tried: list[Tried]) -> Tried:
    """The one that needs the fewest epochs or, if none is as good, the one with the smallest error."""
    reached = [one for one in tried if one.reached]
    return min(reached, key=lambda one: (one.epochs, one.mae)) if reached else min(tried, key=lambda one: one.mae)


def train_head(
    spec: TrainOptions, split: Split, goal: Goal, *, rate: float, most_epochs: int, device: str, folder: Path
) -> TrainedHead:
    """Ends when the head is as good, when it has not improved for some epochs, or after `most_epochs`."""
    began, base = spent(), _base(spec, split)
    tokenizer = tokenizer_of(base, spec.max_tokens)
    watch = _Watch(goal=goal, targets=np.asarray(split.held_out.targets, dtype=np.float64))
    trainer = Trainer(
        model=base.model,
        args=_arguments(rate, most_epochs, device, folder),
        train_dataset=TokenRows(split.learned, split.target, tokenizer),
        eval_dataset=TokenRows(split.held_out, split.target, tokenizer),
        data_collator=DataCollatorWithPadding(base.tokenizer),
        compute_loss_func=loss_of(split.target, split.learned.targets, spec.class_weights),
        compute_metrics=watch.note,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return TrainedHead(
        scores=watch.scores,
        rate=rate,
        epochs=watch.epochs,
        reached=watch.reached,
        time=spent() - began - watch.evaluations,
        evaluations=watch.evaluations,
    )


@dataclass(kw_only=True, eq=False)
class _Watch(TrainerCallback):
    """Evaluates each epoch, and keeps the scores of the best."""

    goal: Goal
    targets: Floats
    scores: Floats = field(init=False)
    epochs: int = 0  # until the best
    best: float = np.inf
    reached: bool = False
    evaluations: Spent = field(default_factory=Spent)

    def note(self, found: EvalPrediction) -> dict[str, float]:
        scores = np.asarray(found.predictions)[:, 0]
        errors = np.abs(scores - self.targets)
        if errors.mean() < self.best:
            self.best, self.scores, self.reached = float(errors.mean()), scores, self.goal.is_reached(errors)
        return {"mae": float(errors.mean())}

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = spent()

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.evaluations += spent() - self._began
        epoch = round(state.epoch)
        if given["metrics"]["eval_mae"] == self.best:
            self.epochs = epoch
        control.should_training_stop = self.reached or epoch - self.epochs >= _PATIENCE


def _arguments(rate: float, most_epochs: int, device: str, folder: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=BATCH_ROWS,
        per_device_eval_batch_size=BATCH_ROWS,
        num_train_epochs=most_epochs,
        learning_rate=rate,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=_MOST_NORM,
        eval_strategy="epoch",
        save_strategy="no",
        use_cpu=device == "cpu",
        dataloader_pin_memory=device != "cpu",
        seed=0,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )


def _base(spec: TrainOptions, split: Split) -> BaseModel:
    """Always with the same new head. All else is frozen, and nothing is dropped out."""
    set_seed(0)
    base = load_base(spec.base_model, split.target)
    base.model.base_model.requires_grad_(False)
    for part in base.model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return base


def _try(
    rate: float,
    head: torch.nn.Module,
    learned: torch.Tensor,
    held_out: torch.Tensor,
    split: Split,
    goal: Goal,
    most_epochs: int,
) -> Tried:
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
    best = Tried(rate=rate, epochs=0, mae=np.inf, reached=False)
    for epoch in range(most_epochs):
        _one_epoch(head, optimizer, learned, split.learned, epoch)
        with torch.no_grad():
            errors = np.abs(head(held_out)[:, 0].numpy() - split.held_out.targets)
        if errors.mean() < best.mae:
            best = Tried(rate=rate, epochs=epoch + 1, mae=float(errors.mean()), reached=goal.is_reached(errors))
        if best.reached:
            break
    return best


def _one_epoch(
    head: torch.nn.Module, optimizer: torch.optim.Optimizer, embeddings: torch.Tensor, rows: Rows, epoch: int
) -> None:
    """In the order of the Trainer with seed 0."""
    targets = torch.tensor(rows.targets, dtype=torch.float32)
    order = torch.tensor(list(RandomSampler(rows, generator=torch.Generator().manual_seed(epoch))))
    for batch in order.split(BATCH_ROWS):
        torch.nn.functional.mse_loss(head(embeddings[batch])[:, 0], targets[batch]).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), _MOST_NORM)
        optimizer.step()
        optimizer.zero_grad()
