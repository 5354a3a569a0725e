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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import pipeline

from fleet.errors import UsageError
from fleet.process.tuned import Figures
from fleet.run.scoring import Scoring
from worker.scoring import EncodedRows, Reading
from worker.scoring.backends import Backend
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.peak import finish
from worker.scoring.scorer import always
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.tokenizing.tokens import Counts, Tokens, padded_tokens, plan_batches
from worker.tuning.texts import TrialTexts

BATCH_SIZES = (*range(5, 45, 5), 64, 128, 256, 768)  # rows of the pipeline
_CLASSIFY: dict[str, Any] = {"padding": "longest", "truncation": True, "function_to_apply": "none"}
_AS_IT_IS = Reading()
_STEP = 4_096  # sequences that are put together at once
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
    waste: float  # share of padding among the tokens that go through the model
    run: Callable[[], object]  # does all the work; raises TooLargeError


@dataclass(frozen=True, kw_only=True)
class Trial:
    setting: Setting
    figures: Figures | None  # None if out of memory


def run_trials(
    candidates: list[Candidate],
    *,
    rows: int,
    tokens: int,
    repeats: int,
    device: torch.device,
    say: Callable[[str], None],
) -> tuple[Trial, ...]:
    """Run each candidate once to warm up and `repeats` times to measure. `rows` and `tokens` are the work of each.

    Each turn runs all candidates, so that a disturbance of the machine affects all.
    """
    laps: dict[Setting, list[_Lap]] = {}
    for candidate in candidates:
        say(f"Warming up: {candidate.setting}")
        if _lap(candidate, device) is not None:
            laps[candidate.setting] = []
    for turn in range(repeats):
        gc.collect()  # here rather than while the clock runs
        in_turn = [candidate for candidate in candidates if candidate.setting in laps]
        if turn % 2:
            in_turn.reverse()  # so that none always follows the same one
        for candidate in in_turn:
            lap = _lap(candidate, device)
            if lap is None:
                del laps[candidate.setting]
                continue
            laps[candidate.setting].append(lap)
            say(f"Turn {turn + 1} of {repeats}: {candidate.setting}: {rows / lap.seconds:,.1f} rows/s")
    return tuple(_trial(candidate, laps.get(candidate.setting), rows, tokens) for candidate in candidates)


def best_of(trials: tuple[Trial, ...]) -> Trial:
    """The smallest setting within 2 % of the fastest. Raises UsageError if none fits in memory."""
    rates = {trial.setting.size: trial.figures.rows_per_second for trial in trials if trial.figures}
    if not rates:
        smallest = min(trial.setting.size for trial in trials)
        raise UsageError(f"Batches of {smallest:,} tokens do not fit in memory. Try smaller ones with --budgets.")
    near = min(size for size, rate in rates.items() if rate >= _NEAR_ENOUGH * max(rates.values()))
    return next(trial for trial in trials if trial.setting.size == near)


@dataclass(frozen=True, kw_only=True)
class _Lap:
    seconds: float
    memory_bytes: int | None


def _lap(candidate: Candidate, device: torch.device) -> _Lap | None:
    """None if the candidate runs out of memory."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    finish(device)
    start = time.perf_counter()
    try:
        candidate.run()
    except TooLargeError:
        pass
    else:
        finish(device)
        seconds = time.perf_counter() - start
        return _Lap(seconds=seconds, memory_bytes=torch.cuda.max_memory_allocated(device) if on_gpu else None)
    if on_gpu:
        torch.cuda.empty_cache()  # not inside the except block: its traceback holds the batch's tensors
    return None


def _trial(candidate: Candidate, laps: list[_Lap] | None, rows: int, tokens: int) -> Trial:
    if not laps:
        return Trial(setting=candidate.setting, figures=None)
    seconds = median(lap.seconds for lap in laps)
    figures = Figures(
        rows_per_second=rows / seconds,
        tokens_per_second=tokens / seconds,
        waste=candidate.waste,
        memory_bytes=max((lap.memory_bytes for lap in laps if lap.memory_bytes), default=None),
    )
    return Trial(setting=candidate.setting, figures=figures)


def budget_candidates(
    scorer: SequenceClassifier,
    windows: Sequence[EncodedRows],
    budgets: tuple[int, ...],
    reading: Reading = _AS_IT_IS,
) -> list[Candidate]:
    """One candidate per budget. Each scores window after window, as a worker does."""
    strict = replace(scorer, backend=_Strict(backend=scorer.backend))
    return [_budget_candidate(replace(strict, max_batch_tokens=budget), reading, windows) for budget in budgets]


def token_counts(window: EncodedRows) -> Counts:
    """The tokens of each sequence, without the padding beside other labels of its text that `batch_lengths` may have."""
    sequences = window.sequences
    starts = range(0, len(sequences), _STEP)
    steps = [np.arange(start, min(start + _STEP, len(sequences))) for start in starts]
    return np.concatenate([np.empty(0, np.int64), *(sequences.take(step).lengths for step in steps)])


def _budget_candidate(scorer: SequenceClassifier, reading: Reading, windows: Sequence[EncodedRows]) -> Candidate:
    reader = scorer.reading(reading)

    def run() -> None:
        for window in windows:
            reader.score_encoded(window, always, None)

    return Candidate(
        setting=Setting(way=Way.BUDGET, size=scorer.max_batch_tokens), waste=_budget_waste(scorer, windows), run=run
    )


def _budget_waste(scorer: SequenceClassifier, windows: Sequence[EncodedRows]) -> float:
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


def reference_candidates(
    scoring: Scoring, revision: str | None, texts: TrialTexts, lengths: npt.NDArray[np.int64], device: torch.device
) -> list[Candidate]:
    """One candidate for each batch size that the texts fill, for a scoring that the options have checked.

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
