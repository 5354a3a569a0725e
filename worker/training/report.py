"""What `worker train` prints: all figures as JSON, or the main ones as a table."""

import dataclasses
import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fleet.process.durations import shown_duration
from worker.training.labels import LabelSource
from worker.training.metrics import Metrics
from worker.training.spec import TrainSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from worker.training.metrics import Metrics, Quality
    from worker.training.trained import Steps


_MIB = 1 << 20
_TENTHS_BELOW_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainReport:
    """Of a finished training. The figures in `held_out` are of rows that the weights were not fitted to.

    As text it is what `worker train` prints.
    """

    spec: TrainSpec
    source: LabelSource
    classes: tuple[str, ...]  # none in a regression
    threshold: float | None  # of a regression
    rows: int  # of the data, with those that were held out of it
    held_out: "Metrics"
    seconds: float  # from reading the rows to the trained model; saving it is not in them
    rows_per_second: float  # in the `work_seconds`
    work_seconds: float  # in which texts were embedded, or steps were taken
    peak_memory_bytes: int
    device: str
    dtype: str
    steps: "Steps | None"
    versions: dict[str, str]

    def __repr__(self) -> str:
        quality, rows = self.held_out.at_threshold or self.held_out.macro, self.held_out.rows
        return (
            f"<TrainReport {self.spec.output_uri}: accuracy {quality.accuracy:.1%}, F1 {quality.f1:.3f} "
            f"of {rows:,} held-out rows>"
        )

    def __str__(self) -> str:
        lines = report_lines(self)
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["source"]["files"] = len(fields["source"].pop("file_uris"))
        return fields


def report_table(report: TrainReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in report_lines(report):
        table.add_row(name, value)
    return table


def report_lines(report: TrainReport) -> list[tuple[str, str]]:
    held_out = report.held_out
    lines = [("held-out rows", f"{held_out.rows:,} of {report.rows:,}" if _is_part(report) else f"{held_out.rows:,}")]
    if held_out.mae is not None:
        lines.append(("mean absolute error", f"{held_out.mae:.3f}"))
    if held_out.at_threshold is not None:
        lines += _of(held_out.at_threshold, f" at {report.threshold:g}")
    lines += _of(held_out.macro, "" if report.classes else " of rounded scores")
    lines += [
        ("calibration error", f"{held_out.calibration_error:.3f}"),
        ("speed", f"{report.rows_per_second:,.1f} rows/s in {report.dtype} on {report.device}"),
        ("time", f"{_shown(report.seconds)}, of them {_shown(report.work_seconds)} at this speed"),
        ("peak memory", f"{report.peak_memory_bytes / _MIB:,.0f} MiB"),
    ]
    if report.steps:
        lines.append(("steps", f"{report.steps.done:,} of {report.steps.planned:,}"))
    return lines


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _TENTHS_BELOW_SECONDS else shown_duration(seconds)


def _is_part(report: TrainReport) -> bool:
    return report.spec.validation_uri is None


def _of(quality: "Quality", where: str) -> list[tuple[str, str]]:
    return [
        (f"accuracy{where}", f"{quality.accuracy:.1%}"),
        (f"precision, recall, F1{where}", f"{quality.precision:.3f}, {quality.recall:.3f}, {quality.f1:.3f}"),
    ]


# Draw how well the held-out rows are predicted: a confusion matrix, and calibration. Only this module knows matplotlib.

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
