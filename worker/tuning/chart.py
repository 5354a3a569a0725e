"""Draw rows per second and memory against batch size. Only this module knows matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING

from worker.tuning.trials import Trial, Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS = {
    Way.BUDGET: "tokens in a batch, padding included",
    Way.PIPELINE: "rows in a batch of the plain pipeline (float32)",
}
_COLOUR = {Way.BUDGET: "tab:blue", Way.PIPELINE: "tab:orange"}
_GIB = 1 << 30


def draw_chart(file: Path, trials: tuple[Trial, ...], best: Trial, *, title: str) -> None:
    """Write a PNG with one column of curves for our budgets and, if it was tried, one for the plain pipeline."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ways = [way for way in Way if any(trial.setting.way is way for trial in trials)]
    figure = Figure(figsize=(6.4 * len(ways), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = figure.subplots(2, len(ways), squeeze=False, sharex="col", sharey="row", height_ratios=(2, 1))
    for way, (rates, memory) in zip(ways, panels.T, strict=True):
        _draw_way(rates, memory, way, [trial for trial in trials if trial.setting.way is way])
    _mark(panels[0][0], best)
    for row, label in zip(panels, ("rows/s", "memory, GiB"), strict=True):
        row[0].set_ylabel(label)
        row[0].set_ylim(0, 1.1 * max(axes.dataLim.ymax for axes in row))
    figure.savefig(file, format="png", dpi=150)


def _draw_way(rates: "Axes", memory: "Axes", way: Way, trials: list[Trial]) -> None:
    points = [(trial.setting.size, trial.figures) for trial in trials if trial.figures]
    sizes = [size for size, _ in points]
    rates.plot(sizes, [figures.rows_per_second for _, figures in points], marker="o", color=_COLOUR[way])
    memory.plot(sizes, [figures.memory_bytes / _GIB for _, figures in points], marker="o", color=_COLOUR[way])
    for trial in trials:
        if trial.figures is None:
            rates.axvline(trial.setting.size, color="tab:red", linestyle=":", label=f"{trial.setting}: out of memory")
    memory.set_xscale("log", base=2)
    memory.set_xticks(_labelled(trials), [f"{size:,}" for size in _labelled(trials)], rotation=45)
    memory.set_xlabel(_AXIS[way])
    for axes in (rates, memory):
        axes.grid(alpha=0.3)


def _labelled(trials: list[Trial]) -> list[int]:
    """The sizes to label on the logarithmic axis: each at least a quarter larger than the one before."""
    sizes: list[int] = []
    for trial in trials:
        if not sizes or trial.setting.size >= 1.25 * sizes[-1]:
            sizes.append(trial.setting.size)
    return sizes


def _mark(axes: "Axes", best: Trial) -> None:
    assert best.figures
    rate = best.figures.rows_per_second
    label = f"best: {best.setting}, {rate:,.1f} rows/s"
    axes.plot(
        best.setting.size,
        rate,
        marker="o",
        markersize=14,
        fillstyle="none",
        linestyle="none",
        color="tab:green",
        label=label,
    )
    axes.legend(loc="lower right")
