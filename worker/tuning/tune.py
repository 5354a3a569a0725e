"""Find the fastest token budget for a model on this device, store it for workers here, and show it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.table import Table

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.open_input import list_files, open_input
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.tuned import Tuned, store_tuned
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import WINDOW_ROWS
from shardsift.fleet.run.text import TextOptions, chosen_columns, row_texts, template_of, text_columns
from shardsift.fleet.storage.errors import translated
from shardsift.worker.scoring import EncodedRows, Reading
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokenize import plain_texts
from shardsift.worker.service.serving import key_of, load_untuned_model
from shardsift.worker.shard.scoring_groups import reading_of
from shardsift.worker.shard.window_scoring import unscorable_rows
from shardsift.worker.tuning.trials import (
    Method,
    Trial,
    TrialTexts,
    best_of,
    budget_candidates,
    reference_candidates,
    run_trials,
)
from shardsift.worker.tuning.tune_options import TuneOptions, parse_budgets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = {"cpu": 64, "mps": 1_000, "cuda": 20_000}  # texts of a trial, so that it takes a few seconds
_REFERENCE_ROWS = 2_304  # most texts for the pipeline, which is slow: three batches of the largest size
_CPU_BUDGETS = (512, 1_024, 2_048, 4_096, 8_192)
_STEP_ROWS = 256  # decoded at once
_GPU_BUDGETS = (4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 262_144)

_AXIS = {
    Method.BUDGET: "tokens in a batch, padding included",
    Method.PIPELINE: "rows in a batch of the plain pipeline (float32)",
}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    tuned: Tuned
    stored_in: Path
    texts: int
    sequences: int  # more than `texts` if texts have several passages or labels
    mean_tokens: float  # of a sequence
    best: Trial
    trials: tuple[Trial, ...]  # our budgets, then the pipeline if it was tried


def tune(settings: Settings, scoring: Scoring, options: TuneOptions, say: Callable[[str], None]) -> Tuning:
    """Measure token budgets, and store the best one.

    Raises ModelError if the model cannot be loaded, or cannot read texts in the way that `scoring` says. Raises
    UsageError if there are no texts, or no budget fits in memory.
    """
    model = scoring.model
    say(f"Loading {model.name}")
    commit = None if model.is_folder else model.revision
    scorer = load_untuned_model(model, settings)
    device, kind = scorer.device, scorer.device.type
    texts = trial_texts(options.input_uri, options, options.rows or _ROWS[kind])
    reading = reading_of(scoring)
    windows = _encoded(scorer, reading, texts)
    lengths = np.concatenate([window.sequences.batch_lengths for window in windows])
    measured = partial(run_trials, repeats=options.repeats, device=device, say=say)

    budgets = parse_budgets(options.budgets) if options.budgets else (_CPU_BUDGETS if kind == "cpu" else _GPU_BUDGETS)
    candidates = budget_candidates(scorer, windows, budgets, reading)
    trials = measured(candidates, rows=len(texts))
    best = best_of(trials)
    tuned = Tuned(
        key=key_of(scorer, model),
        max_batch_tokens=best.setting.size,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    stored_in = store_tuned(settings.state_dir, tuned)
    del scorer, candidates  # to free their memory for the reference
    if options.reference:
        rows = min(len(texts), _REFERENCE_ROWS)
        sequences = rows * (scoring.outputs if scoring.zero_shot else 1)
        pipelines = reference_candidates(scoring, commit, texts[:rows], sequences, device)
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


def trial_texts(uri: str | None, options: TextOptions, rows: int) -> TrialTexts:
    """Read the first `rows` texts or pairs that a run would score. Raises UsageError if there are none."""
    if uri is None:
        return plain_texts(sample_texts(rows))
    found: list[TrialTexts] = []
    try:
        for part in _parts(uri, options):
            found.append(part)
            if sum(map(len, found)) >= rows:
                break
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"Cannot read {uri}: {error}.") from error
    if not any(map(len, found)):
        raise UsageError(f"{uri} has no text to score. Name a column of texts with --text-column.")
    return pa.concat_arrays(found)[:rows]


def _parts(uri: str, options: TextOptions) -> Iterator[TrialTexts]:
    template, pair = template_of(options.text_column), options.text_pair_column
    chosen = chosen_columns(options.columns)
    for file_uri in list_files(uri).uris:
        with open_input(file_uri, chosen, only=chosen is not None) as file:
            columns = text_columns(options, file.schema, file_uri, called=file_uri)
            read = tuple(dict.fromkeys((*columns, *([] if pair is None else [pair]))))
            with translated(f"Reading {file_uri}"):
                for batch in file.batches(read, bad={}, most_rows=_STEP_ROWS, use_threads=False):
                    rows = pa.Table.from_batches([batch])
                    yield _scored(row_texts(rows, columns, template=template, pair_column=pair))


def _scored(texts: TrialTexts) -> TrialTexts:
    unscorable = list(unscorable_rows(texts))
    return texts.take(pa.array(np.setdiff1d(np.arange(len(texts)), unscorable)))


def _encoded(scorer: SequenceClassifier, reading: Reading, texts: TrialTexts) -> list[EncodedRows]:
    reader = scorer.reading(reading)
    starts = range(0, len(texts), WINDOW_ROWS)
    windows = [reader.encode(texts[first : first + WINDOW_ROWS]) for first in starts]
    if not any(len(window.sequences) for window in windows):
        raise UsageError("None of the texts has a token. Name a column of texts with --text-column.")
    return windows


# Show the speed of each batch size, as a table with notes and as a picture.


def tuning_table(tuning: Tuning) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("batch", no_wrap=True)
    table.add_column("rows/s", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(str(trial.setting), _rate(trial.rows_per_second), "best" if trial == tuning.best else "")
    return table


def _rate(rows_per_second: float | None) -> str:
    if rows_per_second is None:
        return "out of memory"
    return f"{rows_per_second:,.1f}" if rows_per_second >= 10 else f"{rows_per_second:.2f}"


def tuning_lines(tuning: Tuning) -> list[str]:
    key = tuning.tuned.key
    lines = [
        f"{tuning.texts:,} texts: {tuning.sequences:,} sequences with {tuning.mean_tokens:,.0f} tokens on average, tokenized "
        "beforehand. A worker tokenizes while the model runs."
    ]
    if tuning.texts < WINDOW_ROWS:
        lines.append(
            f"With more rows there is less padding: a worker sorts up to {WINDOW_ROWS:,} rows together. "
            "Try more with --rows."
        )
    if any(trial.setting.method is Method.PIPELINE for trial in tuning.trials):
        lines.append("The pipeline runs in float32, and its time includes tokenizing.")
    return [
        *lines,
        f"Stored in {tuning.stored_in}. A worker that loads {key.model} on {key.device} in {key.dtype}, {key.backend}, "
        f"now uses batches of {tuning.tuned.max_batch_tokens:,} tokens.",
    ]


def draw_chart(file: Path, tuning: Tuning) -> None:
    """Draw rows per second as a PNG: a curve for our token budgets and, if it was tried, one for transformers' pipeline."""
    from matplotlib.figure import Figure

    trials, best, key = tuning.trials, tuning.best, tuning.tuned.key
    methods = [method for method in Method if any(trial.setting.method is method for trial in trials)]
    figure = Figure(figsize=(6.4 * len(methods), 4.8), layout="constrained")
    figure.suptitle(f"{Path(key.model).name} on {key.device}, {key.dtype}, {key.backend}")
    panels = figure.subplots(1, len(methods), squeeze=False, sharey=True)[0]
    for method, axes in zip(methods, panels, strict=True):
        _draw_method(axes, method, [trial for trial in trials if trial.setting.method is method])
    label = f"best: {best.setting}, {_rate(best.rows_per_second)} rows/s"
    panels[0].axvline(best.setting.size, color="tab:green", label=label)
    panels[0].legend(loc="lower right")
    panels[0].set_ylabel("rows/s")
    panels[0].set_ylim(bottom=0)
    figure.savefig(file, format="png", dpi=150)


def _draw_method(axes: "Axes", method: Method, trials: list[Trial]) -> None:
    fits = [trial for trial in trials if trial.rows_per_second]
    axes.plot([trial.setting.size for trial in fits], [trial.rows_per_second or 0 for trial in fits], marker="o")
    for trial in trials:
        if trial.rows_per_second is None:
            axes.axvline(trial.setting.size, color="tab:red", linestyle=":", label=f"{trial.setting}: out of memory")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(_AXIS[method])
    axes.grid(alpha=0.3)
