"""Candidates that run transformers' own pipeline at several batch sizes, in float32, with texts in input order."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import pipeline

from fleet.errors import UsageError
from fleet.scoring import Scoring
from worker.scoring.batches import padded_tokens
from worker.scoring.forward import is_lack_of_memory
from worker.tuning.texts import TrialTexts
from worker.tuning.trials import Candidate, Setting, TooLargeError, Way

_CLASSIFY: dict[str, Any] = {"padding": "longest", "truncation": True, "function_to_apply": "none"}
BATCH_SIZES = (*range(5, 45, 5), 64, 128, 256, 768)  # rows


def reference_candidates(
    scoring: Scoring, revision: str | None, texts: TrialTexts, lengths: npt.NDArray[np.int64], device: torch.device
) -> list[Candidate]:
    """One candidate for each batch size that the texts fill, for what `check_reference` of plan.py has passed.

    `lengths` are the tokens of each sequence: of each text, or of each text with each label. The pipeline's time includes
    tokenizing.
    """
    task: Any = "zero-shot-classification" if scoring.zero_shot else "text-classification"
    pipe = pipeline(task, model=scoring.model.name, revision=revision, dtype=torch.float32, device=device)
    sizes = [size for size in BATCH_SIZES if size <= len(lengths)]
    given, call = _given(texts), _call(scoring)
    return [_candidate(partial(pipe, given, batch_size=size, **call), lengths, size) for size in sizes]


def _given(texts: TrialTexts) -> list[Any]:
    """Texts and pairs as the pipeline takes them."""
    if not isinstance(texts, pa.StructArray):
        return list(texts.to_pylist())
    return [{"text": pair["first"], "text_pair": pair["second"]} for pair in texts.to_pylist()]


def _call(scoring: Scoring) -> dict[str, Any]:
    if zero_shot := scoring.zero_shot:
        return {
            "candidate_labels": list(zero_shot.labels),
            "hypothesis_template": zero_shot.hypothesis_template,
            "multi_label": zero_shot.multi_label,
        }
    return _CLASSIFY | ({"max_length": scoring.max_tokens} if scoring.max_tokens else {})


def _candidate(score: Callable[[], object], lengths: npt.NDArray[np.int64], size: int) -> Candidate:
    def run() -> None:
        try:
            score()
        except RuntimeError as error:
            if is_lack_of_memory(error):
                raise TooLargeError from error
            raise
        except ValueError as error:  # for example a tokenizer without a padding token, which our scorer handles
            raise UsageError(f"The plain pipeline cannot score these texts: {error}. Leave out --reference.") from error

    return Candidate(setting=Setting(way=Way.PIPELINE, size=size), waste=_waste(lengths, size), run=run)


def _waste(lengths: npt.NDArray[np.int64], size: int) -> float:
    rows = np.arange(len(lengths))
    sent = sum(padded_tokens(lengths, rows[first : first + size]) for first in range(0, len(rows), size))
    return 1 - int(lengths.sum()) / sent
