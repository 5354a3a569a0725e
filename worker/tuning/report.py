"""Show how fast each batch size is, as a table with notes and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fleet.process.wording import counted
from fleet.run.spec import WINDOW_ROWS
from worker.tuning.trials import Trial, Way
from worker.tuning.tune import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GIB = 1 << 30
_AXIS = {
    Way.BUDGET: "tokens in a batch, padding included",
    Way.PIPELINE: "rows in a batch of the plain pipeline (float32)",
}


def tuning_table(tuning: Tuning) -> Table:
    """One line per setting."""
    table = Table(box=None, pad_edge=False)
    table.add_column("batch", no_wrap=True)
    for name in ("rows/s", "tokens/s", "padding", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(str(trial.setting), *_cells(trial), "best" if trial == tuning.best else "")
    return table


def _cells(trial: Trial) -> list[str]:
    figures = trial.figures
    if figures is None:
        return ["out of memory", "", "", ""]
    return [
        _rate(figures.rows_per_second),
        f"{figures.tokens_per_second:,.0f}",
        f"{figures.waste:.1%}",
        "" if figures.memory_bytes is None else f"{figures.memory_bytes / _GIB:.2f} GiB",
    ]


def _rate(rows_per_second: float) -> str:
    """Slow models score less than one row a second."""
    return f"{rows_per_second:,.1f}" if rows_per_second >= 10 else f"{rows_per_second:.2f}"


def tuning_lines(tuning: Tuning) -> list[str]:
    """Sentences below the table."""
    tuned = tuning.tuned
    key = tuned.key
    lines = [
        f"{tuned.rows:,} texts, {_labelled(tuning)}{_in_passages(tuning)}with {tuning.mean_tokens:,.0f} tokens on average. They "
        f"were tokenized beforehand, at {tuning.tokenized_per_second:,.0f} rows/s; a worker tokenizes while the model runs.",
    ]
    if tuned.rows < WINDOW_ROWS:
        lines.append(
            f"With more rows there is less padding: a worker sorts up to {WINDOW_ROWS:,} rows together. "
            "Try more with --rows."
        )
    return [
        *lines,
        *_about_reference(tuning),
        f"Stored in {tuning.stored_in}. A worker that loads {key.model} on {key.device} in {key.dtype}, {key.backend}, "
        f"now uses batches of {tuned.max_batch_tokens:,} tokens.",
    ]


def _labelled(tuning: Tuning) -> str:
    return f"each with {counted(tuning.labels, 'label')}, " if tuning.labels else ""


def _in_passages(tuning: Tuning) -> str:
    return "" if tuning.passages is None else f"read in {counted(tuning.passages, 'passage')} "


def _about_reference(tuning: Tuning) -> list[str]:
    if all(trial.setting.way is Way.BUDGET for trial in tuning.trials):
        return []
    return [
        "The pipeline runs in float32, and its time includes tokenizing. Batch sizes above the number of texts, or of their "
        "pairs with labels, were not tried."
    ]


def draw_chart(file: Path, tuning: Tuning) -> None:
    """Write a PNG of rows per second: one curve for our budgets and, if it was tried, one for the plain pipeline."""
    from matplotlib.figure import Figure

    trials, best, key = tuning.trials, tuning.best, tuning.tuned.key
    ways = [way for way in Way if any(trial.setting.way is way for trial in trials)]
    figure = Figure(figsize=(6.4 * len(ways), 4.8), layout="constrained")
    figure.suptitle(f"{Path(key.model).name} on {key.device}, {key.dtype}, {key.backend}")
    panels = figure.subplots(1, len(ways), squeeze=False, sharey=True)[0]
    for way, axes in zip(ways, panels, strict=True):
        _draw_way(axes, way, [trial for trial in trials if trial.setting.way is way])
    assert best.figures
    rate = best.figures.rows_per_second
    label = f"best: {best.setting}, {rate:,.1f} rows/s"
    panels[0].plot(best.setting.size, rate, "o", markersize=14, fillstyle="none", color="tab:green", label=label)
    panels[0].legend(loc="lower right")
    panels[0].set_ylabel("rows/s")
    panels[0].set_ylim(bottom=0)
    figure.savefig(file, format="png", dpi=150)


def _draw_way(axes: "Axes", way: Way, trials: list[Trial]) -> None:
    points = [(trial.setting.size, trial.figures.rows_per_second) for trial in trials if trial.figures]
    axes.plot([size for size, _ in points], [rate for _, rate in points], marker="o")
    for trial in trials:
        if trial.figures is None:
            axes.axvline(trial.setting.size, color="tab:red", linestyle=":", label=f"{trial.setting}: out of memory")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(_AXIS[way])
    axes.grid(alpha=0.3)
