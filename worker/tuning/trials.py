"""Compare the speed of our scorer at different batch sizes, and with transformers' own pipeline.

Texts for our scorer are tokenized beforehand, because in a worker another thread tokenizes while the model runs.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from statistics import median
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from transformers import pipeline

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.scoring import Scoring
from shardsift.worker.scoring import EncodedRows, Reading, always
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.forward import is_lack_of_memory
from shardsift.worker.scoring.peak import finish
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokens import Tokens

TrialTexts: TypeAlias = pa.LargeStringArray | pa.StructArray  # texts, or pairs of them
BATCH_SIZES = (*range(5, 45, 5), 64, 128, 256, 768)  # rows of the pipeline
_CLASSIFY: dict[str, Any] = {"padding": "longest", "truncation": True, "function_to_apply": "none"}
_AS_IT_IS = Reading()
_NEAR_ENOUGH = 0.98  # of the highest speed; a larger batch that gains less is not worth its memory


class Method(StrEnum):
    BUDGET = "budget"  # ours; sizes are in tokens, with padding
    PIPELINE = "pipeline"  # transformers' own; sizes are in rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    method: Method
    size: int

    def __str__(self) -> str:
        return f"{self.size:,} tokens" if self.method is Method.BUDGET else f"pipeline, {self.size:,} rows"


Candidates: TypeAlias = dict[Setting, Callable[[], object]]  # setting → function that scores all texts with it


@dataclass(frozen=True, kw_only=True)
class Trial:
    setting: Setting
    rows_per_second: float | None  # median of the turns; None if out of memory


def run_trials(
    candidates: Candidates, *, rows: int, repeats: int, device: torch.device, say: Callable[[str], None]
) -> tuple[Trial, ...]:
    """Run each candidate once to warm up, then `repeats` times to measure. A run scores `rows` rows.

    The candidates take turns, so that disturbances of the machine affect all of them.
    """
    laps: dict[Setting, list[float]] = {}  # in seconds
    for setting, run in candidates.items():
        say(f"Warming up: {setting}")
        if _seconds(run, device) is not None:
            laps[setting] = []
    for turn in range(repeats):
        gc.collect()  # not while the clock runs
        in_turn = list(laps)
        if turn % 2:
            in_turn.reverse()  # so that a candidate does not always follow the same one
        for setting in in_turn:
            seconds = _seconds(candidates[setting], device)
            if seconds is None:
                del laps[setting]
                continue
            laps[setting].append(seconds)
            say(f"Turn {turn + 1} of {repeats}: {setting}: {rows / seconds:,.1f} rows/s")
    rates = {setting: rows / median(seconds) for setting, seconds in laps.items()}
    return tuple(Trial(setting=setting, rows_per_second=rates.get(setting)) for setting in candidates)


def best_of(trials: tuple[Trial, ...]) -> Trial:
    """Choose the smallest setting within 2 % of the fastest. Raises UsageError if none fits in memory."""
    fastest = max(trial.rows_per_second or 0 for trial in trials)
    if not fastest:
        smallest = min(trial.setting.size for trial in trials)
        raise UsageError(f"Batches of {smallest:,} tokens do not fit in memory. Try smaller ones with --budgets.")
    near = [trial for trial in trials if (trial.rows_per_second or 0) >= _NEAR_ENOUGH * fastest]
    return min(near, key=lambda trial: trial.setting.size)


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
    """Make a candidate for each token budget: a function that scores all windows, one after another as in a worker."""

    def scoring_with(budget: int) -> Callable[[], object]:
        sized = scorer.with_budget(budget)
        reader = replace(sized, backend=_Strict(backend=sized.backend)).reading(reading)
        return lambda: [reader.score_encoded(window, always, None) for window in windows]

    return {Setting(method=Method.BUDGET, size=budget): scoring_with(budget) for budget in budgets}


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


def reference_candidates(
    scoring: Scoring, revision: str | None, texts: TrialTexts, sequences: int, device: torch.device
) -> Candidates:
    """Make a candidate for each batch size of transformers' pipeline up to `sequences`.

    `sequences` is the number of texts or, in zero-shot classification, of texts × labels. The pipeline's time includes
    tokenizing.
    """
    task: Any = "zero-shot-classification" if scoring.zero_shot else "text-classification"
    pipe = pipeline(task, model=scoring.model.name, revision=revision, dtype=torch.float32, device=device)
    given, call = _given(texts), _call(scoring)
    return {
        Setting(method=Method.PIPELINE, size=size): partial(pipe, given, batch_size=size, **call)
        for size in BATCH_SIZES
        if size <= sequences
    }


def _given(texts: TrialTexts) -> list[Any]:
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
