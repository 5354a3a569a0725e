"""Draw how well the held-out rows are predicted: a confusion matrix, and calibration. Only this module knows matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worker.training.metrics import Metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFUSION, CALIBRATION = "confusion.png", "calibration.png"
_MOST_NUMBERS = 20  # classes of which the counts are written into the matrix


def draw_pictures(folder: Path, metrics: Metrics) -> None:
    _draw_confusion(folder / CONFUSION, metrics)
    calibration_chart(metrics).savefig(folder / CALIBRATION, format="png", dpi=120)


def _draw_confusion(file: Path, metrics: Metrics) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = np.array(metrics.confusion)
    figure = Figure(figsize=(5.6, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    image = axes.imshow(counts, cmap="Blues")
    figure.colorbar(image, label="rows")
    places = range(len(metrics.classes))
    axes.set_xticks(places, metrics.classes, rotation=45, ha="right")
    axes.set_yticks(places, metrics.classes)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    axes.set_title(f"{metrics.rows:,} held-out rows")
    if len(metrics.classes) <= _MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if count > counts.max() / 2 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
    figure.savefig(file, format="png", dpi=120)


def calibration_chart(metrics: Metrics) -> "Figure":
    """Probabilities are shown from 0 to 1. The legend is below the axes, where it hides no point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    predicted, observed = ([getattr(one, name) for one in metrics.calibration] for name in ("predicted", "observed"))
    of_classes = metrics.mae is None
    ends = [0.0, 1.0] if of_classes else [min(predicted + observed), max(predicted + observed)]
    figure = Figure(figsize=(5.2, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(ends, ends, color="tab:gray", linestyle=":", label="calibrated")
    axes.plot(
        predicted, observed, marker="o", clip_on=False, label=f"off by {metrics.calibration_error:.3f} on average"
    )
    axes.set_xlabel("mean probability of the predicted class" if of_classes else "mean score")
    axes.set_ylabel("share of rows predicted rightly" if of_classes else "mean label")
    axes.set_title(f"{metrics.rows:,} held-out rows, in bins of similar scores")
    if of_classes:
        axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure
