"""A scoring that is interrupted half way and resumed, beside one that is not."""

from itertools import count
from typing import Any

from worker.scoring import Scorer, Scores


def whole_partial_resumed(scorer: Scorer[Any], encoded: Any) -> tuple[Scores, Scores, Scores]:
    """All scores, those of the first half of the batches, and those of the scoring that goes on after that half."""
    batches, calls = count(1), count(1)
    whole = scorer.score_encoded(encoded, lambda rows: next(batches) > 0, None)
    half = next(batches) // 2
    partial = scorer.score_encoded(encoded, lambda rows: next(calls) < half, None)
    return whole, partial, scorer.score_encoded(encoded, lambda rows: True, partial)
