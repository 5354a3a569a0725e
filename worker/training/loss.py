"""The loss of a batch, so that it does not depend on how many batches a step is divided into."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from worker.training.spec import ClassWeights
from worker.training.targets import Target, Targets

Loss = Callable[..., torch.Tensor]


def loss_of(target: Target, targets: Targets, class_weights: ClassWeights) -> Loss:
    """For the Trainer's `compute_loss_func`: the sum over the rows of a batch, divided by the rows of the whole step.

    The models' own loss is a mean over a batch. Means of batches of different sizes do not add up to the mean of a step.
    """
    weights = None
    if class_weights == "balanced":  # as scikit-learn weights them: each class has the same sum
        counts = np.bincount(targets.astype(np.int64), minlength=target.outputs)
        weights = torch.tensor(len(targets) / (target.outputs * np.maximum(counts, 1)), dtype=torch.float32)

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None) -> torch.Tensor:
        logits = outputs.logits.float()
        if target.is_regression:
            total = torch.nn.functional.mse_loss(logits[:, 0], labels.float(), reduction="sum")
        else:
            balance = None if weights is None else weights.to(logits.device)
            total = torch.nn.functional.cross_entropy(logits, labels, weight=balance, reduction="sum")
        return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    return loss
