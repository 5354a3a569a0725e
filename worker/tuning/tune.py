"""Find the fastest token budget for a model on this device, and store it for the workers that load the model here."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.process.tuned import Tuned, store_tuned
from fleet.run.model import Model
from fleet.run.spec import WINDOW_ROWS
from worker.loading import key_of, load_model
from worker.scoring import EncodedRows, ModelError, Place, Reading
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.shard.scoring_groups import reading_of
from worker.tuning.options import TunePlan
from worker.tuning.texts import TrialTexts, trial_texts
from worker.tuning.trials import Trial, best_of, budget_candidates, reference_candidates, run_trials

_ROWS = {"cpu": 64, "mps": 1_000, "cuda": 20_000}  # texts of a trial, so that a turn takes some seconds
_REFERENCE_ROWS = 2_304  # at most: three batches of the largest size; the pipeline is slow and has many sizes
_CPU_BUDGETS = (512, 1_024, 2_048, 4_096, 8_192)
_GPU_BUDGETS = (8_192, 16_384, 32_768, 65_536, 131_072, 262_144)

_NOWHERE = Place(shard="", source_identity="", first_row=0)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The result that is shown to the user."""

    tuned: Tuned
    stored_in: Path
    texts: int
    sequences: int  # more than texts, if a text has several passages or labels
    mean_tokens: float  # of a sequence
    best: Trial
    trials: tuple[Trial, ...]  # of our budgets, then of the pipeline if it was tried


def tune(settings: Settings, plan: TunePlan, say: Callable[[str], None]) -> Tuning:
    """Time the budgets, and store the best one. Raises UsageError, before the trials if possible."""
    model, scoring, options = plan.model, plan.scoring, plan.options
    say(f"Loading {model.name}")
    scorer = _loaded(settings, model)
    device, kind = scorer.device, scorer.device.type
    texts = trial_texts(options.input_uri, options, options.rows or _ROWS[kind])
    reading = reading_of(scoring)
    windows = _encoded(scorer, reading, texts)
    lengths = np.concatenate([window.sequences.batch_lengths for window in windows])
    measured = partial(run_trials, repeats=options.repeats, device=device, say=say)

    budgets = plan.budgets or (_CPU_BUDGETS if kind == "cpu" else _GPU_BUDGETS)
    candidates = budget_candidates(scorer, windows, budgets, reading)
    trials = measured(candidates, rows=len(texts))
    best = best_of(trials)
    tuned = Tuned(
        key=key_of(scorer, model.name, model.revision),
        max_batch_tokens=best.setting.size,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    stored_in = store_tuned(settings.state_dir, tuned)
    del scorer, candidates  # its memory must not count as the reference's
    if options.reference:
        rows = min(len(texts), _REFERENCE_ROWS)
        sequences = rows * (scoring.outputs if scoring.zero_shot else 1)
        pipelines = reference_candidates(scoring, _commit(model), texts[:rows], sequences, device)
        trials += measured(pipelines, rows=rows)
    return Tuning(
        tuned=tuned,
        stored_in=stored_in,
        texts=len(texts),
        sequences=len(lengths),
        mean_tokens=float(lengths.mean()),
        best=best,
        trials=trials,
    )


def _loaded(settings: Settings, model: Model) -> SequenceClassifier:
    pinned = settings.model_copy(update={"model": model.name, "model_revision": _commit(model)})
    try:
        return load_model(pinned)
    except ModelError as error:
        raise UsageError(str(error)) from error


def _commit(model: Model) -> str | None:
    """The revision to pass to transformers; None for a folder."""
    return None if model.is_folder else model.revision


def _encoded(scorer: SequenceClassifier, reading: Reading, texts: TrialTexts) -> list[EncodedRows]:
    """The texts in a worker's windows. Raises UsageError if there are no tokens, or if the model cannot read texts so."""
    try:
        reader = scorer.reading(reading)
    except ModelError as error:
        raise UsageError(str(error)) from error
    starts = range(0, len(texts), WINDOW_ROWS)
    windows = [reader.encode(texts[first : first + WINDOW_ROWS], _NOWHERE) for first in starts]
    if not any(len(window.sequences) for window in windows):
        raise UsageError("None of the texts has a token. Name a column of texts with --text-column.")
    return windows
