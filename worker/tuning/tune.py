"""Find the fastest token budget for a model on this device, and store it for the workers that load the model here."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.process.tuned import Tuned, store_tuned
from fleet.run.flops import Shape, shape_of
from fleet.run.model import Model
from fleet.run.scoring import Scoring
from fleet.run.spec import WINDOW_ROWS
from worker.loading import load_model
from worker.scoring import ModelError, Place, Reading
from worker.scoring.peak import matmul_peak, multiplied_in
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.shard.scoring_groups import reading_of
from worker.tuning.apply import key_of
from worker.tuning.candidates import EncodedWindow, budget_candidates, reference_candidates, token_counts
from worker.tuning.chart import draw_chart
from worker.tuning.options import Say, TunePlan
from worker.tuning.texts import TrialTexts, trial_texts
from worker.tuning.trials import Candidate, Sweep, Trial, Work, best_of, gauge_of, sweep

_ROWS = {"cpu": 64, "mps": 1_000, "cuda": 20_000}  # texts of a trial, so that a turn takes some seconds
_REFERENCE_ROWS = 2_304  # limit: three batches of the largest size; the pipeline is slow and has many sizes
_CPU_BUDGETS = (512, 1_024, 2_048, 4_096, 8_192)
_GPU_BUDGETS = (8_192, 16_384, 32_768, 65_536, 131_072, 262_144)
_VERSIONS_OF = ("shardsift", "torch", "transformers")

Lengths = npt.NDArray[np.int64]  # tokens of each sequence
_NOWHERE = Place(shard="", source_identity="", first_row=0)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The result that is shown to the user."""

    tuned: Tuned
    stored_in: Path
    mean_tokens: float  # per text, or per sequence if a text is several
    labels: int  # of zero-shot classification; otherwise 0
    passages: int | None  # of all texts; None if only the beginning of a text is read
    tokenized_per_second: float  # rows, measured before the sweep
    memory: str  # describes what the memory figures measure
    budgets: Sweep
    reference: Sweep | None  # None if it was not tried

    @property
    def trials(self) -> tuple[Trial, ...]:
        return self.budgets.trials + (self.reference.trials if self.reference else ())

    @property
    def best(self) -> Trial:
        return best_of(self.budgets.trials)


def tune(settings: Settings, plan: TunePlan, say: Say) -> Tuning:
    """Time the budgets, store the best one and draw the chart. Raises UsageError, before the sweep if possible."""
    model, scoring, options = plan.model, plan.scoring, plan.options
    say(f"Loading {model.name}")
    scorer = _loaded(settings, model)
    kind = scorer.device.type
    texts = trial_texts(options.input_uri, options, options.rows or _ROWS[kind])
    reading = reading_of(scoring)
    windows, seconds = _encoded(scorer, reading, texts)
    lengths = _lengths(windows)
    bench = _Bench(shape=shape_of(scorer.config), device=scorer.device, repeats=options.repeats, say=say)

    budgets = plan.budgets or (_CPU_BUDGETS if kind == "cpu" else _GPU_BUDGETS)
    candidates = budget_candidates(scorer, windows, budgets, reading)
    swept = bench.sweep(candidates, lengths, scorer.dtype, texts=len(texts))
    tuned = _tuned(scorer, model, best_of(swept.trials), len(texts))
    stored_in = store_tuned(settings.state_dir, tuned)
    del scorer, candidates  # its memory must not count as the reference's
    tuning = Tuning(
        tuned=tuned,
        stored_in=stored_in,
        mean_tokens=float(lengths.mean()),
        labels=plan.labels,
        passages=len(lengths) // max(1, plan.labels) if scoring.passages != "head" else None,
        tokenized_per_second=len(texts) / seconds,
        memory=gauge_of(bench.device).what,
        budgets=swept,
        reference=_reference(bench, scoring, texts, lengths) if options.reference else None,
    )
    if plan.chart:
        draw_chart(plan.chart, tuning.trials, tuning.best, title=_title(tuned))
    return tuning


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """What all sweeps share."""

    shape: Shape | None  # None for a model whose layers are not known
    device: torch.device
    repeats: int
    say: Say

    def sweep(self, candidates: list[Candidate], lengths: Lengths, dtype: str, *, texts: int) -> Sweep:
        """`lengths` are those of the sequences that go through the model: as many as texts, or one for each label of each."""
        operations = float(self.shape.flops(lengths).sum()) if self.shape else None
        work = Work(rows=texts, tokens=int(lengths.sum()), operations=operations)
        return sweep(candidates, work, repeats=self.repeats, device=self.device, peak=self._peak(dtype), say=self.say)

    def _peak(self, dtype: str) -> Callable[[], float] | None:
        shape = self.shape
        return (lambda: matmul_peak(shape, multiplied_in(dtype), self.device)) if shape else None


def _loaded(settings: Settings, model: Model) -> SequenceClassifier:
    pinned = settings.model_copy(update={"model": model.name, "model_revision": _commit(model)})
    try:
        return load_model(pinned)
    except ModelError as error:
        raise UsageError(str(error)) from error


def _commit(model: Model) -> str | None:
    """The revision to pass to transformers; None for a folder."""
    return None if model.is_folder else model.revision


def _encoded(scorer: SequenceClassifier, reading: Reading, texts: TrialTexts) -> tuple[list[EncodedWindow], float]:
    """The texts in a worker's windows, and the seconds that tokenizing took.

    Raises UsageError if there are no tokens, or if the model cannot read texts so.
    """
    start = time.perf_counter()
    try:
        reader = scorer.reading(reading)
    except ModelError as error:
        raise UsageError(str(error)) from error
    starts = range(0, len(texts), WINDOW_ROWS)
    windows = [reader.encode(texts[first : first + WINDOW_ROWS], _NOWHERE) for first in starts]
    seconds = time.perf_counter() - start
    if not any(len(window.sequences) for window in windows):
        raise UsageError("None of the texts has a token. Name a column of texts with --text-column.")
    return windows, seconds


def _lengths(windows: list[EncodedWindow]) -> Lengths:
    return np.concatenate([token_counts(window) for window in windows])


def _tuned(scorer: SequenceClassifier, model: Model, best: Trial, rows: int) -> Tuned:
    assert best.figures
    return Tuned(
        key=key_of(scorer, model.name, model.revision),
        max_batch_tokens=best.setting.size,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        rows=rows,
        threads=torch.get_num_threads(),
        versions={package: version(package) for package in _VERSIONS_OF},
        figures=best.figures,
    )


def _reference(bench: _Bench, scoring: Scoring, texts: TrialTexts, lengths: Lengths) -> Sweep:
    rows = min(len(texts), _REFERENCE_ROWS)
    lengths = lengths[: rows * (scoring.outputs if scoring.zero_shot else 1)]
    candidates = reference_candidates(scoring, _commit(scoring.model), texts[:rows], lengths, bench.device)
    return bench.sweep(candidates, lengths, "float32", texts=rows)


def _title(tuned: Tuned) -> str:
    key = tuned.key
    return f"{Path(key.model).name} on {key.device}, {key.dtype}, {key.backend}"
