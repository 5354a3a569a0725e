"""Candidates that run our scorer at several token budgets.

The texts are tokenized beforehand, because in a worker another thread tokenizes while the model runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from worker.scoring import EncodedRows, Reading, SequenceClassifier
from worker.scoring.backends import Backend
from worker.scoring.batches import padded_tokens, plan_batches
from worker.scoring.combined import EncodedTexts
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.rows import always
from worker.scoring.tokenizing.tokens import Counts, Tokens
from worker.tuning.trials import Candidate, Setting, TooLargeError, Way

EncodedWindow = EncodedRows | EncodedTexts
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
    return [_candidate(replace(strict, max_batch_tokens=budget), reading, windows) for budget in budgets]


def token_counts(window: EncodedWindow) -> Counts:
    """The tokens of each sequence, without the padding beside other labels of its text that `batch_lengths` may have."""
    sequences = window.sequences
    starts = range(0, len(sequences), _STEP)
    steps = [np.arange(start, min(start + _STEP, len(sequences))) for start in starts]
    return np.concatenate([np.empty(0, np.int64), *(sequences.take(step).lengths for step in steps)])


def _candidate(scorer: SequenceClassifier, reading: Reading, windows: Sequence[EncodedWindow]) -> Candidate:
    reader = scorer.reading(reading)

    def run() -> None:
        for window in windows:
            reader.score_encoded(window, always, None)

    return Candidate(
        setting=Setting(way=Way.BUDGET, size=scorer.max_batch_tokens), waste=_waste(scorer, windows), run=run
    )


def _waste(scorer: SequenceClassifier, windows: Sequence[EncodedWindow]) -> float:
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
