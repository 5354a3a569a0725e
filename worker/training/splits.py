"""Which rows are learned from, and which are held out to measure on."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fleet.counted import counted
from fleet.errors import UsageError
from fleet.training import FEWEST_ROWS, TrainSpec
from worker.training.labelled import Labelled, read_labelled
from worker.training.targets import Target, Targets, target_of


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Texts and what a classifier should give for them."""

    texts: pa.LargeStringArray
    targets: Targets

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, kw_only=True)
class Split:
    """`all_rows` are those of the data file, before any were held out."""

    target: Target
    learned: Rows
    held_out: Rows
    all_rows: Rows


def read_split(spec: TrainSpec) -> Split:
    """Read and check the labelled rows. The same spec and files always give the same split."""
    columns = {"text_column": spec.text_column, "label_column": spec.label_column}
    labelled = read_labelled(spec.data_uri, **columns)
    if len(labelled) < FEWEST_ROWS:
        raise UsageError(
            f"{spec.data_uri} has {counted(len(labelled), 'row')}, too few to train on. Give {FEWEST_ROWS} or more."
        )
    target = target_of(labelled, spec.task, spec.class_weights)
    every = _rows(labelled, target)
    _check_threshold(every, target, spec)
    if spec.validation_uri is not None:
        held_out = read_labelled(spec.validation_uri, **columns)
        if not len(held_out):
            raise UsageError(f"{spec.validation_uri} has no rows to measure on.")
        return Split(target=target, learned=every, held_out=_rows(held_out, target), all_rows=every)
    learned, held = _parts(every, target, spec)
    return Split(
        target=target,
        learned=_rows(labelled.take(learned), target),
        held_out=_rows(labelled.take(held), target),
        all_rows=every,
    )


def _rows(labelled: Labelled, target: Target) -> Rows:
    return Rows(texts=labelled.texts, targets=target.of(labelled))


def _check_threshold(rows: Rows, target: Target, spec: TrainSpec) -> None:
    if not target.is_regression:
        return
    lowest, highest = rows.targets.min(), rows.targets.max()
    if not lowest < spec.threshold <= highest:
        raise UsageError(
            f"The labels are {lowest:g} to {highest:g}, all on one side of the threshold {spec.threshold:g}. "
            "Name another one with --threshold."
        )


def _parts(rows: Rows, target: Target, spec: TrainSpec) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers. Classes have the same shares in both parts, as far as their rows allow."""
    from sklearn.model_selection import train_test_split

    held = max(1, round(spec.held_out_share * len(rows)))
    strata = None
    if not target.is_regression:
        counts = np.bincount(rows.targets.astype(np.int64))
        if counts.min() < 2:
            rare = target.classes[int(counts.argmin())]
            raise UsageError(f'Only one row has the class "{rare}". Give two or more of each class.')
        if min(held, len(rows) - held) >= target.outputs:
            strata = rows.targets
    learned, held_out = train_test_split(np.arange(len(rows)), test_size=held, random_state=spec.seed, stratify=strata)
    return learned, held_out
