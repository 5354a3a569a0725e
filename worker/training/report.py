"""Measure how well a classifier predicts the held-out rows, and show the figures as a table, as JSON and as a picture."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.training.labelled import LabelSource, Target, Targets
from worker.training.options import TrainOptions

CONFUSION = "confusion.png"
_MOST_LEVELS = 12  # of a regression's rounded labels, in a confusion matrix
_MOST_NUMBERS = 20  # classes of which the counts are written into the matrix


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Shares, from 0 to 1."""

    accuracy: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Figures of the held-out rows. Of a regression, `classes` are the rounded labels, or the sides of the threshold."""

    rows: int
    macro: Quality  # means over the classes, each counted alike
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows by their label (first index) and by what was predicted
    at_threshold: Quality | None = None  # of a regression: of the rows at or above the threshold
    mae: float | None = None  # mean absolute error of a regression


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How far the training of all weights came."""

    done: int
    planned: int
    resumed_from: int | None  # the step of the checkpoint that this process began with
    best: int | None  # the step of the saved weights, which had the lowest loss on the held-out rows
    losses: tuple[dict[str, Any], ...]  # of the trained and of the held-out rows, by step


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainReport:
    """How a training ended. The figures in `held_out` are of rows that the weights were not fitted to.

    As text it is what `worker train` prints.
    """

    options: TrainOptions
    source: LabelSource
    classes: tuple[str, ...]  # none in a regression
    threshold: float | None  # of a regression
    rows: int  # of the data, with those that were held out of it
    held_out: Metrics
    rows_per_second: float  # while texts were embedded, or steps were taken
    device: str
    dtype: str
    steps: Steps | None
    versions: dict[str, str]

    def __repr__(self) -> str:
        quality, rows = self.held_out.at_threshold or self.held_out.macro, self.held_out.rows
        return (
            f"<TrainReport {self.options.output}: accuracy {quality.accuracy:.1%}, F1 {quality.f1:.3f} "
            f"of {rows:,} held-out rows>"
        )

    def __str__(self) -> str:
        lines = report_lines(self)
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["source"]["files"] = len(fields["source"].pop("file_uris"))
        return fields


def measure(logits: npt.NDArray[np.floating], targets: Targets, target: Target, *, threshold: float | None) -> Metrics:
    """`logits` have shape (rows, outputs). A regression needs a threshold."""
    values = np.asarray(logits, dtype=np.float64)
    if not target.is_regression:
        return _metrics(target.classes, targets, values.argmax(axis=1))
    assert threshold is not None
    scores = values[:, 0]
    return dataclasses.replace(
        _metrics(*_levels(scores, targets, threshold)),
        at_threshold=_quality(targets >= threshold, scores >= threshold, None, "binary"),
        mae=float(np.abs(scores - targets).mean()),
    )


def _metrics(names: tuple[str, ...], truth: Targets, predicted: Targets) -> Metrics:
    from sklearn.metrics import confusion_matrix

    found = np.union1d(truth, predicted)  # other classes must not lower a mean
    confusion = confusion_matrix(truth, predicted, labels=range(len(names)))
    return Metrics(
        rows=len(truth),
        macro=_quality(truth, predicted, found, "macro"),
        classes=names,
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def _levels(scores: Targets, labels: Targets, threshold: float) -> tuple[tuple[str, ...], Targets, Targets]:
    """Classes of a regression, and the class of each label and score. FineWeb-Edu's figures are of rounded scores, too."""
    lowest, highest = int(np.rint(labels.min())), int(np.rint(labels.max()))
    if 1 <= highest - lowest < _MOST_LEVELS:
        truth, predicted = (
            np.clip(np.rint(values), lowest, highest).astype(np.int64) - lowest for values in (labels, scores)
        )
        return tuple(str(level) for level in range(lowest, highest + 1)), truth, predicted
    sides = (f"below {threshold:g}", f"{threshold:g} or more")
    return sides, (labels >= threshold).astype(np.int64), (scores >= threshold).astype(np.int64)


def _quality(truth: Any, predicted: Any, classes: Any, average: str) -> Quality:
    from sklearn.metrics import precision_recall_fscore_support

    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, predicted, labels=classes, average=average, zero_division=0
    )
    accuracy = float(np.mean(np.equal(truth, predicted)))
    return Quality(accuracy=accuracy, precision=float(precision), recall=float(recall), f1=float(f1))


def report_lines(report: TrainReport) -> list[tuple[str, str]]:
    held_out = report.held_out
    of_all = f" of {report.rows:,}" if report.options.validation is None else ""
    lines = [("held-out rows", f"{held_out.rows:,}{of_all}")]
    if held_out.mae is not None:
        lines.append(("mean absolute error", f"{held_out.mae:.3f}"))
    if held_out.at_threshold is not None:
        lines += _quality_lines(held_out.at_threshold, f" at {report.threshold:g}")
    lines += _quality_lines(held_out.macro, "" if report.classes else " of rounded scores")
    lines += [
        ("speed", f"{report.rows_per_second:,.1f} rows/s in {report.dtype} on {report.device}"),
    ]
    if report.steps:
        lines.append(("steps", f"{report.steps.done:,} of {report.steps.planned:,}"))
    return lines


def _quality_lines(quality: Quality, where: str) -> list[tuple[str, str]]:
    return [
        (f"accuracy{where}", f"{quality.accuracy:.1%}"),
        (f"precision, recall, F1{where}", f"{quality.precision:.3f}, {quality.recall:.3f}, {quality.f1:.3f}"),
    ]


def draw_confusion(file: Path, metrics: Metrics) -> None:
    """Write a PNG of the confusion matrix."""
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    figure = Figure(figsize=(5.6, 4.8), layout="constrained")
    axes = figure.subplots()
    picture = ConfusionMatrixDisplay(np.array(metrics.confusion), display_labels=metrics.classes)
    picture.plot(
        ax=axes,
        cmap="Blues",
        values_format=",d",
        xticks_rotation=45,
        include_values=len(metrics.classes) <= _MOST_NUMBERS,
    )
    axes.set_title(f"{metrics.rows:,} held-out rows")
    figure.savefig(file, format="png", dpi=120)
