"""The parity gate: a worker serves a model only if the optimised model reproduces the scores of the plain one.

The plain one is what a model card shows: the tokenizer called with padding, the model called in float32.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from worker.scoring.device import release_memory
from worker.scoring.errors import ModelError, ParityError
from worker.scoring.parity_trial import Logits, ParityTrial
from worker.scoring.precision import TOLERANCES, Candidate
from worker.scoring.sequence_classifier import SequenceClassifier

_REFERENCE_ROWS = 16  # at once
logger = logging.getLogger(__name__)


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

    `device` takes the inputs of a model that is on several. Raises ModelError if a logit is not finite.
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
    if not np.isfinite(logits).all():
        raise ModelError(
            f"The model {model.name_or_path} gives logits that are not finite, also in float32 and as transformers runs it: "
            "its weights are damaged. Save or download them again."
        )
    return logits


def check_parity(parity: ParityTrial, *, model: str, backend: str, candidate: Candidate) -> None:
    """Raises ParityError, with the figures, if the logits differ by more than the tolerance of the candidate's format.

    A plain candidate is the model itself: only logits that are not finite are refused.
    """
    tolerance = TOLERANCES[candidate.dtype]
    limit = tolerance.error * parity.scale
    if not np.isfinite(parity.fast).all():
        problem = "some logits are not finite"
    elif candidate.is_plain:
        return
    elif parity.max_error > limit:
        problem = f"a logit differs by {parity.max_error:.2g}, and at most {limit:.2g} is allowed"
    elif (correlation := parity.rank_correlation(tolerance.rounding)) < tolerance.rank_correlation:
        problem = f"the rank correlation is {correlation:.4f}, and at least {tolerance.rank_correlation} is needed"
    else:
        return
    raise ParityError(
        f"The model {model} scores differently in {candidate.dtype} ({backend}) than in float32: of {parity.rows} sample texts, "
        f"{problem}."
    )


def first_faithful(
    candidates: Sequence[Candidate], load: Callable[[Candidate], SequenceClassifier], *, advice: str
) -> SequenceClassifier:
    """Load the first candidate that passes the gate. The log and `refused_dtypes` name the formats that do not.

    Raises ParityError with the advice if none does.
    """
    refused: list[str] = []
    for candidate in candidates[:-1]:
        try:
            return _loaded(load, candidate, refused)
        except ParityError as error:
            logger.warning("%s The next best is tried.", error)
        refused.append(candidate.dtype)
        release_memory()
    try:
        return _loaded(load, candidates[-1], refused)
    except ParityError as error:
        raise ParityError(f"{error} {advice}".strip()) from None


def _loaded(
    load: Callable[[Candidate], SequenceClassifier], candidate: Candidate, refused: Sequence[str]
) -> SequenceClassifier:
    others = dict.fromkeys(dtype for dtype in refused if dtype != candidate.dtype)
    return replace(load(candidate), refused_dtypes=tuple(others))
