"""How well a classifier predicts the held-out rows. Knows nothing of models or pictures."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from worker.training.rows import Target, Targets

Floats = npt.NDArray[np.float64]
_MOST_LEVELS = 12  # of a regression's rounded labels, in a confusion matrix
_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Shares, from 0 to 1."""

    accuracy: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Rows with similar scores. A calibrated classifier has `observed` equal to `predicted`."""

    predicted: float  # mean score or, of classes, mean probability of the class that was chosen
    observed: float  # mean label or, of classes, share of rows of which the choice is right
    rows: int


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Of a regression, `classes` are the rounded labels, or the sides of the threshold if those are too many."""

    rows: int
    macro: Quality  # means over the classes, each counted alike
    at_threshold: Quality | None  # of a regression: of the rows at or above the threshold
    mae: float | None  # mean absolute error of a regression
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows by their label (first index) and by what was predicted
    calibration: tuple[Bin, ...]
    calibration_error: float  # mean distance of `predicted` and `observed`, weighted by rows


def measure(logits: npt.NDArray[np.floating], targets: Targets, target: Target, *, threshold: float | None) -> Metrics:
    """`logits` have shape (rows, outputs). A regression needs a threshold."""
    values = np.asarray(logits, dtype=np.float64)
    if target.classes:
        return _of_classes(values, targets, target)
    assert threshold is not None
    return _of_scores(values[:, 0], targets, threshold)


def _of_scores(scores: Floats, labels: Targets, threshold: float) -> Metrics:
    names, truth, predicted = _levels(scores, labels, threshold)
    order = np.argsort(scores, kind="stable")
    bins = _bins(np.array_split(order, min(_BINS, len(order))), scores, labels)
    return Metrics(
        rows=len(labels),
        macro=_macro(truth, predicted),
        at_threshold=_at(scores >= threshold, labels >= threshold),
        mae=float(np.abs(scores - labels).mean()),
        classes=names,
        confusion=_confusion(truth, predicted, len(names)),
        calibration=bins,
        calibration_error=_error(bins),
    )


def _of_classes(logits: Floats, truth: Targets, target: Target) -> Metrics:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    predicted, confidence = shares.argmax(axis=1), shares.max(axis=1)
    place = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    groups = [np.flatnonzero(place == index) for index in range(_BINS)]
    bins = _bins([group for group in groups if len(group)], confidence, (predicted == truth).astype(np.float64))
    return Metrics(
        rows=len(truth),
        macro=_macro(truth, predicted),
        at_threshold=None,
        mae=None,
        classes=target.classes,
        confusion=_confusion(truth, predicted, target.outputs),
        calibration=bins,
        calibration_error=_error(bins),
    )


def _levels(scores: Floats, labels: Targets, threshold: float) -> tuple[tuple[str, ...], Targets, Targets]:
    """Classes of a regression, and the class of each label and score. FineWeb-Edu's figures are of rounded scores, too."""
    lowest, highest = int(np.rint(labels.min())), int(np.rint(labels.max()))
    if 1 <= highest - lowest < _MOST_LEVELS:
        truth, predicted = (
            np.clip(np.rint(values), lowest, highest).astype(np.int64) - lowest for values in (labels, scores)
        )
        return tuple(str(level) for level in range(lowest, highest + 1)), truth, predicted
    sides = (f"below {threshold:g}", f"{threshold:g} or more")
    return sides, (labels >= threshold).astype(np.int64), (scores >= threshold).astype(np.int64)


def _macro(truth: Targets, predicted: Targets) -> Quality:
    """Over the classes that occur in labels or predictions."""
    from sklearn.metrics import precision_recall_fscore_support

    found = np.union1d(truth, predicted)
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, predicted, labels=found, average="macro", zero_division=0
    )
    accuracy = float(np.mean(np.equal(truth, predicted)))
    return Quality(accuracy=accuracy, precision=float(precision), recall=float(recall), f1=float(f1))


def _at(kept: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Quality:
    from sklearn.metrics import precision_recall_fscore_support

    precision, recall, f1, _ = precision_recall_fscore_support(right, kept, average="binary", zero_division=0)
    accuracy = float(np.mean(kept == right))
    return Quality(accuracy=accuracy, precision=float(precision), recall=float(recall), f1=float(f1))


def _confusion(truth: Targets, predicted: Targets, classes: int) -> tuple[tuple[int, ...], ...]:
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(truth, predicted, labels=range(classes))
    return tuple(tuple(int(count) for count in row) for row in counts)


def _bins(groups: list[npt.NDArray[np.intp]], predicted: Floats, observed: Targets) -> tuple[Bin, ...]:
    return tuple(
        Bin(predicted=float(predicted[rows].mean()), observed=float(observed[rows].mean()), rows=len(rows))
        for rows in groups
    )


def _error(bins: tuple[Bin, ...]) -> float:
    return sum(abs(one.predicted - one.observed) * one.rows for one in bins) / sum(one.rows for one in bins)
