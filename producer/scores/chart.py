"""Draw the histogram and the keep rate by threshold as a PNG. Only this module of the producer knows matplotlib."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import UsageError
from producer.scores.distribution import Distribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def check_chart(file: Path) -> None:
    """Check before anything is read that the chart can be drawn and written. Raises UsageError."""
    if not importlib.util.find_spec("matplotlib"):
        raise UsageError("Drawing the chart needs matplotlib. Install it with: pip install 'shardsift[tune]'.")
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise UsageError(f"Cannot write the chart to {file}. Name a file in a writable folder with --png.")


def draw_chart(file: Path, distributions: Sequence[Distribution], *, title: str) -> None:
    """Write the chart as a PNG."""
    chart(distributions, title=title).savefig(file, format="png", dpi=150)


def chart(distributions: Sequence[Distribution], *, title: str) -> "Figure":
    """A column for each distribution that has a row: rows by score above, the keep rate below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [one for one in distributions if one.rows]
    figure = Figure(figsize=(6.4 * max(1, len(drawn)), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    if drawn:
        panels = figure.subplots(2, len(drawn), squeeze=False, sharex="col")
        for one, (rows, rate) in zip(drawn, panels.T, strict=True):
            width = one.bin_width()
            bins = one.histogram(width)
            rows.bar(list(bins), list(bins.values()), width=width, align="edge", edgecolor="white")
            _draw_keep_rate(rate, one, first=min(bins), last=round(max(bins) + width, 6))
        panels[0][0].set_ylabel("rows")
        panels[1][0].set_ylabel("rows at or above, %")
    return figure


def _draw_keep_rate(axes: "Axes", one: Distribution, *, first: float, last: float) -> None:
    """Steps, not a line from point to point: within a step of the distribution the rate is not known."""
    rates = {first: 1.0} | one.keep_rates() | {last: 0.0}
    axes.step(list(rates), [100 * rate for rate in rates.values()], where="post", color="tab:orange")
    axes.set_xlabel(one.column)
    axes.set_ylim(0, 105)
    axes.grid(visible=True)
