"""Draw the histogram and the keep rate by threshold as a PNG. Only this module of the producer knows matplotlib."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from fleet.errors import UsageError
from producer.scores.distribution import Distribution


def check_chart(file: Path) -> None:
    """Check before anything is read that the chart can be drawn and written. Raises UsageError."""
    if not importlib.util.find_spec("matplotlib"):
        raise UsageError("Drawing the chart needs matplotlib. Install it with: pip install 'shardsift[tune]'.")
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise UsageError(f"Cannot write the chart to {file}. Name a file in a writable folder with --png.")


def draw_chart(file: Path, distributions: Sequence[Distribution], *, title: str) -> None:
    """Write a PNG with a column for each distribution that has a row: rows by score above, the keep rate below."""
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
            edges = [*bins, max(bins) + width]
            rate.plot(edges, [100 * one.at_least(edge) / one.rows for edge in edges], color="tab:orange")
            rate.set_xlabel(one.column)
            rate.set_ylim(0, 105)
            rate.grid(visible=True)
        panels[0][0].set_ylabel("rows")
        panels[1][0].set_ylabel("rows at or above, %")
    figure.savefig(file, format="png", dpi=150)
