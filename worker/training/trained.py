"""What training gives: a model, and how it went."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.training.base_model import BaseModel


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How far the training of all weights came."""

    done: int
    planned: int
    resumed_from: int | None  # the step of the checkpoint that this process began with
    best: int | None  # the step of the saved weights, which had the lowest loss on the held-out rows
    losses: tuple[dict[str, Any], ...]  # of the trained and of the held-out rows, by step


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model that is not saved yet. `held_out_logits` have shape (rows, outputs)."""

    base: BaseModel
    held_out_logits: npt.NDArray[np.floating]
    rows_per_second: float  # in these seconds: without what comes before and after
    work_seconds: float  # of the texts embedded once, or of the steps
    peak_memory_bytes: int
    device: str
    dtype: str
    steps: Steps | None = None
