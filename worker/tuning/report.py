"""Show how fast each batch size is, as a table with notes and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fleet.run.spec import WINDOW_ROWS
from worker.tuning.trials import Trial, Way
from worker.tuning.tune import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS = {
    Way.BUDGET: "tokens in a batch, padding included",
    Way.PIPELINE: "rows in a batch of the plain pipeline (float32)",
}


def tuning_table(tuning: Tuning) -> Table:
    """One line per setting."""
    table = Table(box=None, pad_edge=False)
    table.add_column("batch", no_wrap=True)
    table.add_column("rows/s", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(str(trial.setting), _rate(trial.rows_per_second), "best" if trial == tuning.best else "")
    return table


def _rate(rows_per_second: float | None) -> str:
    """Slow models score less than one row a second."""
    if rows_per_second is None:
        return "out of memory"
    return f"{rows_per_second:,.1f}" if rows_per_second >= 10 else f"{rows_per_second:.2f}"


def tuning_lines(tuning: Tuning) -> list[str]:
    """Sentences below the table."""
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
    if any(trial.setting.way is Way.PIPELINE for trial in tuning.trials):
        lines.append("The pipeline runs in float32, and its time includes tokenizing.")
    return [
        *lines,
        f"Stored in {tuning.stored_in}. A worker that loads {key.model} on {key.device} in {key.dtype}, {key.backend}, "
        f"now uses batches of {tuning.tuned.max_batch_tokens:,} tokens.",
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
    label = f"best: {best.setting}, {_rate(best.rows_per_second)} rows/s"
    panels[0].axvline(best.setting.size, color="tab:green", label=label)
    panels[0].legend(loc="lower right")
    panels[0].set_ylabel("rows/s")
    panels[0].set_ylim(bottom=0)
    figure.savefig(file, format="png", dpi=150)


def _draw_way(axes: "Axes", way: Way, trials: list[Trial]) -> None:
    fits = [trial for trial in trials if trial.rows_per_second]
    axes.plot([trial.setting.size for trial in fits], [trial.rows_per_second or 0 for trial in fits], marker="o")
    for trial in trials:
        if trial.rows_per_second is None:
            axes.axvline(trial.setting.size, color="tab:red", linestyle=":", label=f"{trial.setting}: out of memory")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(_AXIS[way])
    axes.grid(alpha=0.3)
