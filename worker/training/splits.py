"""Which rows are learned from, and which are held out to measure on."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fleet.counted import counted
from fleet.errors import UsageError
from worker.training.labelled import Labelled, read_labelled
from worker.training.labels import LabelSource
from worker.training.spec import FEWEST_ROWS, TrainSpec
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
    """Rows of the data, and what identifies them. The texts are in memory once."""

    target: Target
    threshold: float | None  # of a regression
    could_be_classes: bool  # the integers 0 and 1, learned as numbers
    learned: Rows
    held_out: Rows
    rows: int  # of the data, before any were held out
    left_out: int  # rows whose label has too low a score
    data_digest: str
    validation_digest: str | None  # of rows that are not from the data


def read_split(spec: TrainSpec, source: LabelSource) -> Split:
    """Read and check the labelled rows. The same spec and rows always give the same split."""
    labelled = read_labelled(source)
    if len(labelled) < FEWEST_ROWS:
        raise UsageError(_too_few(labelled))
    digest, measured_digest = labelled.digest, None  # before the rows are divided, since either takes memory
    target = target_of(labelled, spec.task, spec.class_weights)
    every = _rows(labelled, target)
    threshold = _threshold(every, target, spec)
    if spec.validation_uri is not None:
        measured = read_labelled(source.beside(spec.validation_uri))
        if not len(measured):
            raise UsageError(f"{spec.validation_uri} has no rows to measure on.")
        learned, held_out, measured_digest = every, _rows(measured, target), measured.digest
    else:
        learned, held_out = (_rows(labelled.take(part), target) for part in _parts(every, target, spec))
    return Split(
        target=target,
        threshold=threshold,
        could_be_classes=target.is_regression and _are_zero_and_one(labelled),
        learned=learned,
        held_out=held_out,
        rows=len(labelled),
        left_out=labelled.left_out,
        data_digest=digest,
        validation_digest=measured_digest,
    )


def _too_few(labelled: Labelled) -> str:
    left_out = f" after {labelled.left_out:,} were left out" if labelled.left_out else ""
    return f"{labelled.shown} has {counted(len(labelled), 'row')}{left_out}, too few to train on. Give {FEWEST_ROWS} or more."


def _rows(labelled: Labelled, target: Target) -> Rows:
    return Rows(texts=labelled.texts, targets=target.of(labelled))


def _are_zero_and_one(labelled: Labelled) -> bool:
    return pa.types.is_integer(labelled.labels.type) and set(labelled.labels.unique().to_pylist()) == {0, 1}


def _threshold(rows: Rows, target: Target, spec: TrainSpec) -> float | None:
    if not target.is_regression:
        return None
    lowest, highest = float(rows.targets.min()), float(rows.targets.max())
    if spec.threshold is None:
        return (lowest + highest) / 2
    if not lowest < spec.threshold <= highest:
        raise UsageError(
            f"The labels are {lowest:g} to {highest:g}, all on one side of the threshold {spec.threshold:g}. "
            "Name another one with --threshold, or leave it out."
        )
    return spec.threshold


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
