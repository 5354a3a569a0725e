"""Measure how well a classifier predicts held-out rows, and report it as a table, as JSON and as a model card."""

import dataclasses
import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from huggingface_hub import ModelCardData

from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.wording import is_url
from shardsift.fleet.run.choices import DEFAULT_TEXT_COLUMN
from shardsift.fleet.run.model import with_revision
from shardsift.worker.training.labelled import LabelSource, Target, Targets
from shardsift.worker.training.train_options import DEMO_ENCODER, DEMO_ENCODER_ON_HUB, TrainOptions

_HUB = "hf://"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_CONFUSION = "confusion.png"
_MOST_LEVELS = 12  # different rounded labels of a regression in a confusion matrix
_MOST_NUMBERS = 20  # with more classes, the matrix shows colours without counts


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Measures of quality, from 0 to 1."""

    accuracy: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Figures for the held-out rows. For a regression, `classes` are rounded labels, or the sides of the threshold."""

    rows: int
    macro: Quality  # unweighted means over the classes
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # numbers of rows by label (first index) and prediction
    at_threshold: Quality | None = None  # for a regression, with the rows at or above the threshold as positives
    mae: float | None = None  # mean absolute error of a regression


@dataclass(frozen=True, kw_only=True)
class Steps:
    done: int
    planned: int
    resumed_from: int | None  # step of the checkpoint from which this process resumed
    best: int | None  # step of the saved weights, with the lowest loss on the held-out rows
    losses: tuple[dict[str, Any], ...]  # on trained and held-out rows, by step


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainReport:
    """The result of a training. `held_out` has figures for the held-out rows: those of --validation if given.

    The weights that these figures measure were not fitted to them. They are the saved weights, except that a last layer
    trained without --validation is fitted again to all rows before it is saved.

    `str(report)` is the text that `worker train` prints.
    """

    options: TrainOptions
    source: LabelSource
    classes: tuple[str, ...]  # empty for a regression
    threshold: float | None  # for a regression
    rows: int  # in the data, including held-out ones, but without those of --validation
    held_out: Metrics
    rows_per_second: float  # while texts were embedded, or during the training steps
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
    """Compute metrics from logits of shape (rows, outputs). A regression needs a threshold."""
    values = np.asarray(logits, dtype=np.float64)
    if not target.is_regression:
        return _metrics(target.classes, targets, values.argmax(axis=1))
    assert threshold is not None
    scores = values[:, 0]
    return dataclasses.replace(
        _metrics(*_levels(scores, targets, threshold)),
        at_threshold=_quality(targets >= threshold, scores >= threshold, "binary"),
        mae=float(np.abs(scores - targets).mean()),
    )


def _metrics(names: tuple[str, ...], truth: Targets, predicted: Targets) -> Metrics:
    from sklearn.metrics import confusion_matrix

    confusion = confusion_matrix(truth, predicted, labels=range(len(names)))
    return Metrics(
        rows=len(truth),
        macro=_quality(truth, predicted, "macro"),
        classes=names,
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def _levels(scores: Targets, labels: Targets, threshold: float) -> tuple[tuple[str, ...], Targets, Targets]:
    """Turn a regression into classes. Returns their names, and the classes of the labels and of the scores.

    If there are 2 to 12 integers from the lowest to the highest rounded label, these are the classes, as for
    FineWeb-Edu. Otherwise, the classes are the two sides of the threshold.
    """
    lowest, highest = int(np.rint(labels.min())), int(np.rint(labels.max()))
    if 1 <= highest - lowest < _MOST_LEVELS:
        truth, predicted = (
            np.clip(np.rint(values), lowest, highest).astype(np.int64) - lowest for values in (labels, scores)
        )
        return tuple(str(level) for level in range(lowest, highest + 1)), truth, predicted
    sides = (f"below {threshold:g}", f"{threshold:g} or more")
    return sides, (labels >= threshold).astype(np.int64), (scores >= threshold).astype(np.int64)


def _quality(truth: Any, predicted: Any, average: str) -> Quality:
    """Compute the measures. Macro averages leave out classes that occur neither in `truth` nor in `predicted`."""
    from sklearn.metrics import precision_recall_fscore_support

    precision, recall, f1, _ = precision_recall_fscore_support(truth, predicted, average=average, zero_division=0)
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
    lines.append(("speed", f"{report.rows_per_second:,.1f} rows/s in {report.dtype} on {report.device}"))
    if report.steps:
        lines.append(("steps", f"{report.steps.done:,} of {report.steps.planned:,}"))
    return lines


def _quality_lines(quality: Quality, where: str) -> list[tuple[str, str]]:
    return [
        (f"accuracy{where}", f"{quality.accuracy:.1%}"),
        (f"precision, recall, F1{where}", f"{quality.precision:.3f}, {quality.recall:.3f}, {quality.f1:.3f}"),
    ]


# The model card: the training data, the base model, the figures and the command.


def write_card(folder: Path, report: TrainReport) -> None:
    _draw_confusion(folder / _CONFUSION, report.held_out)
    (folder / "README.md").write_text(model_card(report), "utf-8")


def _draw_confusion(file: Path, metrics: Metrics) -> None:
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


def model_card(report: TrainReport) -> str:
    """Write Markdown with a YAML head, as on the Hub. Names local files and folders without their paths."""
    options = report.options
    way = "All weights were trained" if options.full else "The encoder is frozen and the last layer was fitted"
    learned = f"one of {len(report.classes)} classes" if report.classes else "a number"
    figures = "\n".join(f"| {name} | {value} |" for name, value in report_lines(report))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"""---
{_head(report)}
---

# {PurePosixPath(options.output).name}

Predicts {learned} for a text, {_learned_from(report)} ({report.rows:,} rows).
{way}; the base model is `{_without_path(_base_model(report))}`.

| | |
|---|---|
{figures}

The figures are of the held-out rows. docs/training.md of shardsift says which model was measured on them.

![Confusion matrix]({_CONFUSION})

## How it was trained

```bash
{shlex.join(map(_without_path, options.command))}
```

With {versions}.

## How to use it

```bash
{_run_command(report, _without_path(options.output).removeprefix(_HUB).rstrip("/"))}
```
"""


def next_step(report: TrainReport) -> str:
    uri = report.options.output
    return f"The classifier is in {uri}. To score files with it:\n  {_run_command(report, uri.removeprefix(_HUB))}"


def _run_command(report: TrainReport, model: str) -> str:
    command = ["producer", "run", "--input", "./shards"]
    if report.source.text_column != DEFAULT_TEXT_COLUMN:
        command += ["--text-column", report.source.text_column]
    if report.options.max_tokens is not None:
        command += ["--max-tokens", str(report.options.max_tokens)]
    command += ["--model", model, "--output", "./kept"]
    command += ["--keep-all"] if report.classes else ["--min-score", f"{report.threshold:g}"]
    return shlex.join(command)


def _head(report: TrainReport) -> str:
    """Write the card's YAML head. It names no license, because the license of the base model is unknown here."""
    base, _ = with_revision(_base_model(report))
    on_hub = _HUB_NAME.fullmatch(base) and not Path(base).exists()
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=base if on_hub else None,
        tags=["shardsift"],
    )
    return str(data.to_yaml())


def _base_model(report: TrainReport) -> str:
    base = report.options.base_model
    return DEMO_ENCODER_ON_HUB if base == DEMO_ENCODER else base


def _learned_from(report: TrainReport) -> str:
    source = report.source
    labels = f"the column `{source.label_column}` of `{_without_path(source.shown)}`"
    return f"from {labels}, the labels of `{source.teacher}`" if source.teacher else f"from {labels}"


def _without_path(part: str) -> str:
    """Reduce a path to its last part, but keep Hub URIs and names. Removes secrets, because a URL may be signed."""
    if part.startswith(_HUB):
        return redacted(part)
    is_path = part.startswith(("/", "~", "./", "../")) or is_url(part)
    return PurePosixPath(redacted(part)).name if is_path else part
