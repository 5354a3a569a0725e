"""Candidates that run our scorer at several token budgets.

The texts are tokenized beforehand, because in a worker another thread tokenizes while the model runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import pipeline

from fleet.errors import UsageError
from fleet.run.scoring import Scoring
from worker.scoring import EncodedRows, Reading
from worker.scoring.backends import Backend
from worker.scoring.batches import padded_tokens, plan_batches
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.rows import always
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.tokenizing.tokens import Counts, Tokens
from worker.tuning.texts import TrialTexts
from worker.tuning.trials import Candidate, Setting, TooLargeError, Way

EncodedWindow = EncodedRows
_AS_IT_IS = Reading()
_STEP = 4_096  # sequences that are put together at once


def budget_candidates(
    scorer: SequenceClassifier,
    windows: Sequence[EncodedWindow],
    budgets: tuple[int, ...],
    reading: Reading = _AS_IT_IS,
) -> list[Candidate]:
    """One candidate per budget. Each scores window after window, as a worker does."""
    strict = replace(scorer, backend=_Strict(backend=scorer.backend))
    return [_budget_candidate(replace(strict, max_batch_tokens=budget), reading, windows) for budget in budgets]


def token_counts(window: EncodedWindow) -> Counts:
    """The tokens of each sequence, without the padding beside other labels of its text that `batch_lengths` may have."""
    sequences = window.sequences
    starts = range(0, len(sequences), _STEP)
    steps = [np.arange(start, min(start + _STEP, len(sequences))) for start in starts]
    return np.concatenate([np.empty(0, np.int64), *(sequences.take(step).lengths for step in steps)])


def _budget_candidate(scorer: SequenceClassifier, reading: Reading, windows: Sequence[EncodedWindow]) -> Candidate:
    reader = scorer.reading(reading)

    def run() -> None:
        for window in windows:
            reader.score_encoded(window, always, None)

    return Candidate(
        setting=Setting(way=Way.BUDGET, size=scorer.max_batch_tokens), waste=_budget_waste(scorer, windows), run=run
    )


def _budget_waste(scorer: SequenceClassifier, windows: Sequence[EncodedWindow]) -> float:
    if scorer.backend.name.startswith("packed"):
        return 0.0
    sent = tokens = 0
    for window in windows:
        lengths = window.sequences.batch_lengths
        batches = plan_batches(lengths, max_batch_tokens=scorer.max_batch_tokens)
        sent += sum(padded_tokens(lengths, batch) for batch in batches)
        tokens += int(token_counts(window).sum())
    return 1 - tokens / sent


@dataclass(frozen=True, kw_only=True)
class _Strict:
    """Raises TooLargeError when out of memory. The scorer would halve the batch, and so test a smaller budget."""

    backend: Backend

    @property
    def name(self) -> str:
        return self.backend.name

    def logits(self, batch: Tokens) -> torch.Tensor:
        try:
            return self.backend.logits(batch)
        except RuntimeError as error:
            if is_lack_of_memory(error):
                raise TooLargeError from error
            raise


# Candidates that run transformers' own pipeline at several batch sizes, in float32, with texts in input order.

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
    return [_pipeline_candidate(partial(pipe, given, batch_size=size, **call), lengths, size) for size in sizes]


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


def _pipeline_candidate(score: Callable[[], object], lengths: npt.NDArray[np.int64], size: int) -> Candidate:
    def run() -> None:
        try:
            score()
        except RuntimeError as error:
            if is_lack_of_memory(error):
                raise TooLargeError from error
            raise
        except ValueError as error:  # for example a tokenizer without a padding token, which our scorer handles
            raise UsageError(f"The plain pipeline cannot score these texts: {error}. Leave out --reference.") from error

    return Candidate(setting=Setting(way=Way.PIPELINE, size=size), waste=_pipeline_waste(lengths, size), run=run)


def _pipeline_waste(lengths: npt.NDArray[np.int64], size: int) -> float:
    rows = np.arange(len(lengths))
    sent = sum(padded_tokens(lengths, rows[first : first + size]) for first in range(0, len(rows), size))
    return 1 - int(lengths.sum()) / sent
