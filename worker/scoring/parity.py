"""The parity gate: a worker serves a model only if the optimised model reproduces the scores of the plain one.

The plain one is what a model card shows: the tokenizer called with padding, the model called in float32.
"""

from typing import Any

import numpy as np
import torch

from worker.scoring.errors import ParityError
from worker.scoring.parity_trial import Logits, ParityTrial
from worker.scoring.precision import TOLERANCES

_REFERENCE_ROWS = 16  # at once


@torch.inference_mode()
def reference_logits(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    *,
    max_tokens: int,
    outputs: int,
    device: torch.device | None = None,
) -> Logits:
    """The logits of the plain model, which must be in float32. Texts of similar length share a batch to limit padding.

    `device` takes the inputs of a model that is on several.
    """
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    logits = np.empty((len(texts), outputs), dtype=np.float32)
    for first in range(0, len(texts), _REFERENCE_ROWS):
        rows = by_length[first : first + _REFERENCE_ROWS]
        inputs = tokenizer(
            [texts[row] for row in rows],
            padding="longest",
            truncation=True,
            max_length=max_tokens,
            return_tensors="pt",
        )
        logits[rows] = model(**inputs.to(device or model.device)).logits.cpu().numpy()
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
