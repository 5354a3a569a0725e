"""Compare the speed of a scorer at different batch sizes.

Texts are tokenized beforehand, because in a worker another thread tokenizes while the model runs.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeAlias

import torch

from shardsift.fleet.errors import UsageError
from shardsift.worker.scoring import EncodedRows, Reading, always
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.forward import is_lack_of_memory
from shardsift.worker.scoring.peak import finish
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokens import Tokens

_REPEATS = 3
_AS_IT_IS = Reading()
_NEAR_ENOUGH = 0.98  # of the highest speed; a larger batch that gains less is not worth its memory


Candidates: TypeAlias = dict[int, Callable[[], object]]  # token budget → function that scores all texts with it


@dataclass(frozen=True, kw_only=True)
class Trial:
    budget: int  # tokens of a batch, padding included
    rows_per_second: float | None  # median of the turns; None if out of memory


def run_trials(
    candidates: Candidates, *, rows: int, device: torch.device, say: Callable[[str], None]
) -> tuple[Trial, ...]:
    """Run each candidate once to warm up and three times to measure. Each scores `rows` rows.

    Each turn runs all candidates, so that disturbances of the machine affect all of them.
    """
    laps: dict[int, list[float]] = {}  # in seconds
    for budget, run in candidates.items():
        say(f"Warming up: {budget:,} tokens")
        if _seconds(run, device) is not None:
            laps[budget] = []
    for turn in range(_REPEATS):
        gc.collect()  # not while the clock runs
        in_turn = list(laps)
        if turn % 2:
            in_turn.reverse()  # so that a candidate does not always follow the same one
        for budget in in_turn:
            seconds = _seconds(candidates[budget], device)
            if seconds is None:
                del laps[budget]
                continue
            laps[budget].append(seconds)
            say(f"Turn {turn + 1} of {_REPEATS}: {budget:,} tokens: {rows / seconds:,.1f} rows/s")
    rates = {budget: rows / median(seconds) for budget, seconds in laps.items()}
    return tuple(Trial(budget=budget, rows_per_second=rates.get(budget)) for budget in candidates)


def best_of(trials: tuple[Trial, ...]) -> Trial:
    """Choose the smallest budget within 2 % of the fastest. Raises UsageError if none fits in memory."""
    fastest = max(trial.rows_per_second or 0 for trial in trials)
    if not fastest:
        smallest = min(trial.budget for trial in trials)
        raise UsageError(f"Batches of {smallest:,} tokens do not fit in memory. Try smaller ones with --budgets.")
    near = [trial for trial in trials if (trial.rows_per_second or 0) >= _NEAR_ENOUGH * fastest]
    return min(near, key=lambda trial: trial.budget)


def _seconds(run: Callable[[], object], device: torch.device) -> float | None:
    finish(device)
    start = time.perf_counter()
    try:
        run()
    except TooLargeError:
        pass
    except RuntimeError as error:
        if not is_lack_of_memory(error):
            raise
    else:
        finish(device)
        return time.perf_counter() - start
    if device.type == "cuda":
        torch.cuda.empty_cache()  # not in the except block, whose traceback holds the batch's tensors
    return None


def budget_candidates(
    scorer: SequenceClassifier, windows: Sequence[EncodedRows], budgets: tuple[int, ...], reading: Reading = _AS_IT_IS
) -> Candidates:
    """Make a function for each token budget that scores all windows, one by one like a worker."""

    def scoring_with(budget: int) -> Callable[[], object]:
        sized = scorer.with_budget(budget)
        reader = replace(sized, backend=_Strict(backend=sized.backend)).reading(reading)
        return lambda: [reader.score_encoded(window, always, None) for window in windows]

    return {budget: scoring_with(budget) for budget in budgets}


class TooLargeError(Exception):
    """A batch does not fit in the device's memory."""


@dataclass(frozen=True, kw_only=True)
class _Strict:
    """A backend that raises TooLargeError when out of memory, so that the scorer does not halve the batch."""

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
