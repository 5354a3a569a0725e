"""The table of a sweep, and the notes that explain it."""

from rich.table import Table

from fleet.process.tuned import Figures
from fleet.process.wording import counted
from fleet.run.spec import WINDOW_ROWS
from worker.scoring.peak import multiplied_in
from worker.tuning.trials import Trial
from worker.tuning.tune import Tuning

_GIB = 1 << 30


def tuning_table(tuning: Tuning) -> Table:
    """One line per setting."""
    table = Table(box=None, pad_edge=False)
    table.add_column("batch", no_wrap=True)
    for name in ("rows/s", "tokens/s", "padding", "memory", "of peak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(str(trial.setting), *_cells(trial), "best" if trial == tuning.best else "")
    return table


def _cells(trial: Trial) -> list[str]:
    figures = trial.figures
    if figures is None:
        return ["out of memory", "", "", "", ""]
    return [
        _rate(figures.rows_per_second),
        f"{figures.tokens_per_second:,.0f}",
        f"{figures.waste:.1%}",
        f"{figures.memory_bytes / _GIB:.2f} GiB",
        _share(figures),
    ]


def _rate(rows_per_second: float) -> str:
    """Slow models score less than one row a second."""
    return f"{rows_per_second:,.1f}" if rows_per_second >= 10 else f"{rows_per_second:.2f}"


def _share(figures: Figures) -> str:
    return "?" if figures.peak_share is None else f"{figures.peak_share:.1%}"


def tuning_lines(tuning: Tuning) -> list[str]:
    """Sentences below the table."""
    tuned = tuning.tuned
    key = tuned.key
    lines = [
        f"{tuned.rows:,} texts, {_labelled(tuning)}{_in_passages(tuning)}with {tuning.mean_tokens:,.0f} tokens on average. They "
        f"were tokenized beforehand, at {tuning.tokenized_per_second:,.0f} rows/s; a worker tokenizes while the model runs.",
        f"Memory: {tuning.memory}.",
    ]
    if tuned.rows < WINDOW_ROWS:
        lines.append(
            f"With more rows there is less padding: a worker sorts up to {WINDOW_ROWS:,} rows together. "
            "Try more with --rows."
        )
    return [
        *lines,
        *_about_peak(tuning),
        *_about_reference(tuning),
        f"Stored in {tuning.stored_in}. A worker that loads {key.model} on {key.device} in {key.dtype}, {key.backend}, "
        f"now uses batches of {tuned.max_batch_tokens:,} tokens.",
    ]


def _labelled(tuning: Tuning) -> str:
    return f"each with {counted(tuning.labels, 'label')}, " if tuning.labels else ""


def _in_passages(tuning: Tuning) -> str:
    return "" if tuning.passages is None else f"read in {counted(tuning.passages, 'passage')} "


def _about_peak(tuning: Tuning) -> list[str]:
    if tuning.budgets.peak is None:
        return ["The share of the peak is unknown: shardsift cannot count the operations of this type of model."]
    reached = [f"{_tera(tuning.budgets.peak)} in {multiplied_in(tuning.tuned.key.dtype)}".replace("torch.", "")]
    if tuning.reference and tuning.reference.peak is not None:
        reached.append(f"{_tera(tuning.reference.peak)} in float32, for the pipeline")
    return [f"Peak: matrices of the model's shapes were multiplied in this run at {'; '.join(reached)}."]


def _about_reference(tuning: Tuning) -> list[str]:
    if tuning.reference is None:
        return []
    return [
        "The pipeline runs in float32, and its time includes tokenizing. Batch sizes above the number of texts, or of their "
        "pairs with labels, were not tried."
    ]


def _tera(operations: float) -> str:
    return f"{operations / 1e12:.3g} TFLOP/s"
