"""A Trainer whose steps do not depend on the number of processes that share them.

accelerate repeats rows of the epoch's beginning until the batches of all processes are equal in size. The last step of an
epoch would then have other rows than in one process, and the held-out loss would count some rows twice. Here the batches are
filled with blank rows, which have no part in the loss, and the held-out loss is computed from the logits that all processes
have gathered, without what was repeated.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import Sampler
from transformers import EvalPrediction, Trainer, TrainerCallback

from worker.training.division import Division
from worker.training.loss import Loss
from worker.training.token_rows import TokenRows, WithBlanks


class EqualStepsTrainer(Trainer):
    """For a process of a group. `compute_loss_func` must know blank rows; `held_out_loss` gets none."""

    def __init__(self, *, train_dataset: TokenRows, division: Division, held_out_loss: Loss, **given: Any) -> None:
        multiple = division.batch_rows * division.processes
        self._order = _PaddedOrder(len(train_dataset), multiple=multiple, seed=given["args"].seed)
        self._loss_of_rows = held_out_loss
        super().__init__(train_dataset=WithBlanks(train_dataset), compute_metrics=self._held_out_loss, **given)
        self.add_callback(_EpochOf(self._order))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._order

    def prediction_step(self, *given: Any, **named: Any) -> tuple[Any, Any, Any]:
        """Without the loss of the batch, in which rows may be repeated."""
        _, logits, labels = super().prediction_step(*given, **named)
        return None, logits, labels

    def _save_rng_state(self, output_dir: str) -> None:
        """A checkpoint is whole once the first process has written the file after this one, so it waits for the others here."""
        super()._save_rng_state(output_dir)
        torch.distributed.barrier()

    def _held_out_loss(self, predicted: EvalPrediction) -> dict[str, float]:
        logits, labels = torch.as_tensor(predicted.predictions), torch.as_tensor(predicted.label_ids)
        return {"loss": self._loss_of_rows(SimpleNamespace(logits=logits), labels).item()}


class _PaddedOrder(Sampler[int]):
    """The rows in the order in which one process takes them, and blank ones up to a multiple."""

    def __init__(self, rows: int, *, multiple: int, seed: int) -> None:
        self._order = SeedableRandomSampler(range(rows), data_seed=seed)
        self._rows, self._padded = rows, -(-rows // multiple) * multiple

    def set_epoch(self, epoch: int) -> None:
        self._order.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        yield from self._order
        yield from range(self._rows, self._padded)

    def __len__(self) -> int:
        return self._padded


class _EpochOf(TrainerCallback):
    """Tells the epoch, which accelerate does not if it skips the first batches of a resumed epoch."""

    def __init__(self, order: _PaddedOrder) -> None:
        self._order = order

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._order.set_epoch(int(state.epoch or 0))
