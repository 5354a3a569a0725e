"""Read labelled texts from input files, batch by batch. Knows nothing of models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.input_file import InputFile
from fleet.inputs.line_blocks import THEN_RETRY
from fleet.inputs.opening import open_input
from fleet.process.wording import counted
from fleet.run.columns import is_text
from fleet.run.text import row_texts, template_of
from fleet.run.text_digests import text_digest
from fleet.storage.errors import translated
from worker.training.labels import LabelSource, checked_columns, shown_path
from worker.training.spec import FEWEST_ROWS, ClassWeights, TrainSpec, TrainTask


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with a label each. None of them is null."""

    texts: pa.LargeStringArray
    labels: pa.Array  # numbers, texts or booleans
    label_column: str
    shown: str  # the files, for messages
    left_out: int = 0  # rows whose label has too low a score

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> "Labelled":
        chosen = pa.array(rows)
        return replace(self, texts=self.texts.take(chosen), labels=self.labels.take(chosen))

    @property
    def digest(self) -> str:
        """Equal for equal rows in the same order, whatever files hold them."""
        return f"{self.labels.type} {text_digest(self.texts)} {text_digest(self.labels.cast(pa.large_string()))}"


def read_labelled(source: LabelSource) -> Labelled:
    """All rows of the files. Raises UsageError if a file lacks a column, or a row one of the two values."""
    try:
        parts = [part for uri in source.file_uris for part in _batches(uri, source)]
    except ShardsiftError as error:
        raise UsageError(str(error).replace(THEN_RETRY, "then repeat the command")) from error
    kind = _common_type(parts, source)
    return Labelled(
        texts=pa.concat_arrays([pa.array([], pa.large_string()), *(part.texts for part in parts)]),
        labels=pa.concat_arrays([pa.array([], kind), *(part.labels.cast(kind) for part in parts)]),
        label_column=source.label_column,
        shown=source.shown,
        left_out=sum(part.left_out for part in parts),
    )


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Some rows of one file."""

    texts: pa.LargeStringArray
    labels: pa.Array
    file: str
    left_out: int


def _batches(uri: str, source: LabelSource) -> Iterator[_Part]:
    first_row = 0
    with _opened(uri, source) as (file, columns), translated(f"Reading {uri}"):
        read = [name for name in file.schema.names if name in {*columns, *source.label_columns}]
        for batch in file.batches(read, use_threads=False):
            yield _part(pa.Table.from_batches([batch]), columns, source, shown_path(uri), first_row)
            first_row += len(batch)


@contextmanager
def _opened(uri: str, source: LabelSource) -> Iterator[tuple[InputFile, tuple[str, ...]]]:
    """The file with the columns of its texts. Other fields of a file of lines are not looked at."""
    with open_input(uri) as file:
        columns, schema = checked_columns(source, file.schema, uri), file.schema
    types = tuple((name, str(schema.field(name).type)) for name in dict.fromkeys((*columns, *source.label_columns)))
    with open_input(uri, types, only=True) as file:
        yield file, columns


def _part(rows: pa.Table, columns: tuple[str, ...], source: LabelSource, file: str, first_row: int) -> _Part:
    texts = row_texts(rows, columns, template=template_of(source.text.text_column), pair_column=None)
    labels = rows.column(source.label_column).combine_chunks()
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    _check_filled(texts, first_row, f"Row {{row}} of {file} has no text.")
    _check_filled(labels, first_row, f'Row {{row}} of {file} has no label in "{source.label_column}".')
    if pa.types.is_floating(labels.type):
        finite = pc.if_else(pc.is_finite(labels), labels, None)
        _check_filled(finite, first_row, f"The label of row {{row}} of {file} is not a finite number.")
    if source.least_score is not None:
        is_sure = pc.fill_null(pc.greater_equal(rows.column(source.score_column), source.least_score), False)
        texts, labels = texts.filter(is_sure.combine_chunks()), labels.filter(is_sure.combine_chunks())
    return _Part(texts=texts, labels=labels, file=file, left_out=len(rows) - len(texts))


def _check_filled(values: pa.Array, first_row: int, message: str) -> None:
    if values.null_count:
        row = first_row + values.is_null().index(True).as_py()
        raise UsageError(f"{message.format(row=row)} Leave such rows out.")


def _common_type(parts: list[_Part], source: LabelSource) -> pa.DataType:
    """Integers and fractions are numbers. Raises UsageError for files whose labels are of different kinds."""
    files: dict[pa.DataType, str] = {}
    for part in parts:
        files.setdefault(part.labels.type, part.file)
    if len(files) == 1:
        return next(iter(files))
    if all(map(is_text, files)):
        return pa.large_string()
    if all(map(pa.types.is_integer, files)):
        return pa.int64()
    if not files or all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in files):
        return pa.float64()
    one, other, *_ = files
    raise UsageError(
        f'The labels in "{source.label_column}" are {one} in {files[one]} and {other} in {files[other]}. '
        "Store them alike."
    )


# What a classifier is trained to give: a number, or one of some classes.

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


# Which rows are learned from, and which are held out to measure on.


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
        learned, held_out = (_rows(labelled.take(part), target) for part in _learned_and_held_out(every, target, spec))
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


def _learned_and_held_out(rows: Rows, target: Target, spec: TrainSpec) -> tuple[np.ndarray, np.ndarray]:
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
