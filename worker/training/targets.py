"""What a classifier is trained to give: a number, or one of some classes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fleet.columns import is_text
from fleet.errors import UsageError
from worker.training.labelled import Labelled
from worker.training.spec import ClassWeights, TrainTask

Targets = NDArray[np.float64] | NDArray[np.int64]  # one per row: the number, or the index of the class
_MOST_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True)
class Target:
    """`classes` are their names, in the order of the outputs; none in a regression."""

    classes: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        return not self.classes

    @property
    def outputs(self) -> int:
        return len(self.classes) or 1

    @property
    def config(self) -> dict[str, Any]:
        """Of the model, as transformers calls it."""
        names = self.classes or ("score",)
        return {
            "num_labels": self.outputs,
            "problem_type": "regression" if self.is_regression else "single_label_classification",
            "id2label": dict(enumerate(names)),
            "label2id": {name: index for index, name in enumerate(names)},
        }

    def of(self, labelled: Labelled) -> Targets:
        """The targets of the rows. Raises UsageError for a class that is none of these."""
        if self.is_regression:
            numbers: Targets = labelled.labels.cast(pa.float64()).to_numpy()
            return numbers
        index_of = {name: index for index, name in enumerate(self.classes)}
        names = _names(labelled.labels)
        if unknown := sorted(set(names) - index_of.keys()):
            raise UsageError(f'{labelled.shown} has the class "{unknown[0]}", which no row has that is trained on.')
        return np.array([index_of[name] for name in names], dtype=np.int64)


def target_of(labelled: Labelled, task: TrainTask, class_weights: ClassWeights) -> Target:
    """What is learned from these labels. Raises UsageError if they do not suit the task, or nothing can be learned."""
    kind = labelled.labels.type
    named = is_text(kind) or pa.types.is_boolean(kind)
    _check_suits(labelled, task, named=named)
    if task == "regression" or (task == "auto" and not named):
        if class_weights != "none":
            raise UsageError("--class-weights is for classes. For labels that are integers, add --task classification.")
        if len(labelled.labels.unique()) < 2:
            raise UsageError(f"All labels of {labelled.shown} are {labelled.labels[0]}. There is nothing to learn.")
        return Target()
    return Target(classes=_classes(labelled))


def _check_suits(labelled: Labelled, task: TrainTask, *, named: bool) -> None:
    column, kind = labelled.label_column, labelled.labels.type
    if task == "classification" and pa.types.is_floating(kind):
        raise UsageError(
            f'The labels in "{column}" are {kind}, and classes are texts or integers. Use --task regression, or store the '
            "labels as integers."
        )
    if task == "regression" and named:
        raise UsageError(f'The labels in "{column}" are {kind}, not numbers. Use --task classification.')


def _classes(labelled: Labelled) -> tuple[str, ...]:
    """In the order of the values, so that the integer 10 follows 9."""
    values = sorted(labelled.labels.unique().to_pylist())
    if len(values) < 2:
        raise UsageError(
            f'All rows of {labelled.shown} have the class "{values[0]}". Give rows of two classes or more.'
        )
    if len(values) > _MOST_CLASSES:
        raise UsageError(
            f'"{labelled.label_column}" has {len(values):,} different labels, and at most {_MOST_CLASSES:,} classes are '
            "supported. For numbers, use --task regression."
        )
    return tuple(map(str, values))


def _names(labels: pa.Array) -> list[str]:
    return list(map(str, labels.to_pylist()))
