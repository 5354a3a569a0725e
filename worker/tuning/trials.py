"""Time batch sizes of our scorer, and of transformers' own pipeline, against each other.

The texts for our scorer are tokenized beforehand, because in a worker another thread tokenizes while the model runs.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa
import torch
from transformers import pipeline

from fleet.errors import UsageError
from fleet.run.scoring import Scoring
from worker.scoring import EncodedRows, Reading, always
from worker.scoring.backends import Backend
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.peak import finish
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.tokenizing.tokens import Tokens
from worker.tuning.texts import TrialTexts

BATCH_SIZES = (*range(5, 45, 5), 64, 128, 256, 768)  # rows of the pipeline
_CLASSIFY: dict[str, Any] = {"padding": "longest", "truncation": True, "function_to_apply": "none"}
_AS_IT_IS = Reading()
_NEAR_ENOUGH = 0.98  # of the highest rate: a larger batch that gains less is not worth its memory


class TooLargeError(Exception):
    """A setting does not fit in the device's memory."""


class Way(StrEnum):
    BUDGET = "budget"  # ours; the size is in tokens, padding included
    PIPELINE = "pipeline"  # transformers' own; the size is in rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    way: Way
    size: int

    def __str__(self) -> str:
        return f"{self.size:,} tokens" if self.way is Way.BUDGET else f"pipeline, {self.size:,} rows"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting, ready to run."""

    setting: Setting
    run: Callable[[], object]  # does all the work; raises TooLargeError


@dataclass(frozen=True, kw_only=True)
class Trial:
    setting: Setting
    rows_per_second: float | None  # the median of the turns; None if out of memory


def run_trials(
    candidates: list[Candidate], *, rows: int, repeats: int, device: torch.device, say: Callable[[str], None]
) -> tuple[Trial, ...]:
    """Run each candidate once to warm up and `repeats` times to measure. `rows` is the work of each.

    Each turn runs all candidates, so that a disturbance of the machine affects all.
    """
    laps: dict[Setting, list[float]] = {}  # in seconds
    for candidate in candidates:
        say(f"Warming up: {candidate.setting}")
        if _seconds(candidate, device) is not None:
            laps[candidate.setting] = []
    for turn in range(repeats):
        gc.collect()  # here rather than while the clock runs
        in_turn = [candidate for candidate in candidates if candidate.setting in laps]
        if turn % 2:
            in_turn.reverse()  # so that none always follows the same one
        for candidate in in_turn:
            seconds = _seconds(candidate, device)
            if seconds is None:
                del laps[candidate.setting]
                continue
            laps[candidate.setting].append(seconds)
            say(f"Turn {turn + 1} of {repeats}: {candidate.setting}: {rows / seconds:,.1f} rows/s")
    settings = [candidate.setting for candidate in candidates]
    rates = {setting: rows / median(seconds) for setting, seconds in laps.items()}
    return tuple(Trial(setting=setting, rows_per_second=rates.get(setting)) for setting in settings)


def best_of(trials: tuple[Trial, ...]) -> Trial:
    """The smallest setting within 2 % of the fastest. Raises UsageError if none fits in memory."""
    fastest = max(trial.rows_per_second or 0 for trial in trials)
    if not fastest:
        smallest = min(trial.setting.size for trial in trials)
        raise UsageError(f"Batches of {smallest:,} tokens do not fit in memory. Try smaller ones with --budgets.")
    near = [trial for trial in trials if (trial.rows_per_second or 0) >= _NEAR_ENOUGH * fastest]
    return min(near, key=lambda trial: trial.setting.size)


def _seconds(candidate: Candidate, device: torch.device) -> float | None:
    """None if the candidate runs out of memory."""
    finish(device)
    start = time.perf_counter()
    try:
        candidate.run()
    except TooLargeError:
        pass
    else:
        finish(device)
        return time.perf_counter() - start
    if device.type == "cuda":
        torch.cuda.empty_cache()  # not inside the except block: its traceback holds the batch's tensors
    return None


def budget_candidates(
    scorer: SequenceClassifier,
    windows: Sequence[EncodedRows],
    budgets: tuple[int, ...],
    reading: Reading = _AS_IT_IS,
) -> list[Candidate]:
    """One candidate per budget. Each scores window after window, as a worker does."""
    strict = replace(scorer, backend=_Strict(backend=scorer.backend))
    return [_budget_candidate(replace(strict, max_batch_tokens=budget), reading, windows) for budget in budgets]


def _budget_candidate(scorer: SequenceClassifier, reading: Reading, windows: Sequence[EncodedRows]) -> Candidate:
    reader = scorer.reading(reading)

    def run() -> None:
        for window in windows:
            reader.score_encoded(window, always, None)

    return Candidate(setting=Setting(way=Way.BUDGET, size=scorer.max_batch_tokens), run=run)


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


def reference_candidates(
    scoring: Scoring, revision: str | None, texts: TrialTexts, sequences: int, device: torch.device
) -> list[Candidate]:
    """One candidate for each batch size that the sequences fill: the texts, or each text with each label.

    The pipeline's time includes tokenizing.
    """
    task: Any = "zero-shot-classification" if scoring.zero_shot else "text-classification"
    pipe = pipeline(task, model=scoring.model.name, revision=revision, dtype=torch.float32, device=device)
    sizes = [size for size in BATCH_SIZES if size <= sequences]
    given, call = _given(texts), _call(scoring)
    return [_pipeline_candidate(partial(pipe, given, batch_size=size, **call), size) for size in sizes]


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


def _pipeline_candidate(score: Callable[[], object], size: int) -> Candidate:
    def run() -> None:
        try:
            score()
        except RuntimeError as error:
            if is_lack_of_memory(error):
                raise TooLargeError from error
            raise
        except ValueError as error:  # for example a tokenizer without a padding token, which our scorer handles
            raise UsageError(f"The plain pipeline cannot score these texts: {error}. Leave out --reference.") from error

    return Candidate(setting=Setting(way=Way.PIPELINE, size=size), run=run)
