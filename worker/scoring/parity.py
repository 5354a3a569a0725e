"""The parity gate: a worker serves a model only if the optimised model reproduces the scores of the plain one.

The plain one is what a model card shows: the tokenizer called with padding, the model called in float32.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.errors import ParityError
from worker.scoring.precision import TOLERANCES

Logits = npt.NDArray[np.float32]  # shape (rows, outputs)
_REFERENCE_ROWS = 16  # at once


@dataclass(frozen=True, kw_only=True)
class ParityTrial:
    """The logits that the plain and the optimised model give to the same texts."""

    reference: Logits
    fast: Logits

    @property
    def rows(self) -> int:
        return len(self.reference)

    @property
    def max_error(self) -> float:
        return float(self._errors.max(initial=0))

    @property
    def p999_error(self) -> float:
        """The error that 999 of 1,000 logits do not exceed."""
        return float(np.quantile(self._errors, 0.999)) if self._errors.size else 0.0

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation of each row's highest logit; 1 if the reference gives all rows the same score."""
        reference, fast = (_ranks(logits.max(axis=1)) for logits in (self.reference, self.fast))
        if reference.std() == 0:
            return 1.0
        return float(np.corrcoef(reference, fast)[0, 1]) if fast.std() else 0.0

    @property
    def _errors(self) -> npt.NDArray[np.float32]:
        return np.abs(np.subtract(self.reference, self.fast, dtype=np.float32))


def _ranks(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Equal scores share the mean of their ranks."""
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[group]


@torch.inference_mode()
def reference_logits(model: Any, tokenizer: Any, texts: list[str], *, max_tokens: int) -> Logits:
    """The logits of the plain model, which must be in float32. Texts of similar length share a batch to limit padding."""
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    logits = np.empty((len(texts), model.config.num_labels), dtype=np.float32)
    for first in range(0, len(texts), _REFERENCE_ROWS):
        rows = by_length[first : first + _REFERENCE_ROWS]
        inputs = tokenizer(
            [texts[row] for row in rows],
            padding="longest",
            truncation=True,
            max_length=max_tokens,
            return_tensors="pt",
        )
        logits[rows] = model(**inputs.to(model.device)).logits.cpu().numpy()
    return logits


def check_parity(parity: ParityTrial, *, model: str, way: str, dtype: str) -> None:
    """Raises ParityError, with the figures, if the logits differ by more than the tolerance of `dtype`."""
    tolerance = TOLERANCES[dtype]
    limit = tolerance.error * max(1.0, float(np.abs(parity.reference).max(initial=0)))
    if not np.isfinite(parity.fast).all():
        problem = "some logits are not finite"
    elif parity.max_error > limit:
        problem = f"a logit differs by {parity.max_error:.2g}, and at most {limit:.2g} is allowed"
    elif parity.rank_correlation < tolerance.rank_correlation:
        problem = f"the rank correlation is {parity.rank_correlation:.4f}, and at least {tolerance.rank_correlation} is needed"
    else:
        return
    raise ParityError(
        f"The model {model} scores differently in {dtype} ({way}) than in float32: of {parity.rows} sample texts, "
        f"{problem}. {_advice(dtype)}"
    )


def _advice(dtype: str) -> str:
    if dtype == "float32":
        return "Start the worker with --backend padded and without --compile."
    return "Enqueue the run and start the workers with a more precise --dtype, such as float32."
