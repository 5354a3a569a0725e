"""Read labelled texts from input files, and divide them into rows to learn from and rows to measure on. Knows no torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.line_blocks import THEN_RETRY
from fleet.inputs.opening import open_input
from fleet.process.wording import counted
from fleet.run.columns import is_text
from fleet.run.text import row_texts, template_of
from fleet.run.text_digests import text_digest
from fleet.storage.errors import translated
from worker.training.labels import LabelSource, checked_columns, shown_path
from worker.training.options import TrainOptions

Targets = NDArray[np.float64] | NDArray[np.int64]  # one per row: the number, or the index of the class
_FEWEST_ROWS = 20
_MOST_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with a label each. None of them is null."""

    texts: pa.LargeStringArray
    labels: pa.Array  # numbers, texts or booleans
    label_column: str
    shown: str  # the files, for messages

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def digest(self) -> str:
        """Equal for equal rows in the same order, whatever files hold them."""
        return f"{self.labels.type} {text_digest(self.texts)} {text_digest(self.labels.cast(pa.large_string()))}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a classifier is trained to give: a number, or one of some classes.

    `classes` are their names, in the order of the outputs; none in a regression.
    """

    classes: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        return not self.classes

    @property
    def outputs(self) -> int:
        return len(self.classes) or 1

    @property
    def config(self) -> dict[str, Any]:
        """The entries of the model's config, as transformers calls them."""
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
        names = pa.array(map(str, labelled.labels.to_pylist()), pa.string())
        indices = pc.index_in(names, pa.array(self.classes))
        if indices.null_count:
            unknown = min(names.filter(indices.is_null()).to_pylist())
            raise UsageError(f'{labelled.shown} has the class "{unknown}", which no row has that is trained on.')
        classes: Targets = indices.to_numpy().astype(np.int64)
        return classes


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Texts and what a classifier should give for them."""

    texts: pa.LargeStringArray
    targets: Targets

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> "Rows":
        return Rows(texts=self.texts.take(pa.array(rows)), targets=self.targets[rows])


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows of the data, and what identifies them."""

    source: LabelSource
    target: Target
    threshold: float | None  # of a regression
    could_be_classes: bool  # the integers 0 and 1, learned as numbers
    learned: Rows
    held_out: Rows
    rows: int  # of the data, before any were held out
    data_digest: str
    validation_digest: str | None  # of rows that are not from the data


def read_split(options: TrainOptions, source: LabelSource) -> Split:
    """Read and check the labelled rows. The same options and rows always give the same split."""
    labelled = read_labelled(source)
    if len(labelled) < _FEWEST_ROWS:
        raise UsageError(
            f"{labelled.shown} has {counted(len(labelled), 'row')}, too few to train on. Give {_FEWEST_ROWS} or more."
        )
    target = _target_of(labelled, options)
    every = Rows(texts=labelled.texts, targets=target.of(labelled))
    threshold = _threshold(every, options.threshold) if target.is_regression else None
    measured = None
    if options.validation is None:
        learned, held_out = map(every.take, _learned_and_held_out(every, target, options))
    else:
        measured = read_labelled(source.beside(options.validation))
        if not len(measured):
            raise UsageError(f"{options.validation} has no rows to measure on.")
        learned, held_out = every, Rows(texts=measured.texts, targets=target.of(measured))
    return Split(
        source=source,
        target=target,
        threshold=threshold,
        could_be_classes=target.is_regression and _are_zero_and_one(labelled.labels),
        learned=learned,
        held_out=held_out,
        rows=len(labelled),
        data_digest=labelled.digest,
        validation_digest=measured.digest if measured else None,
    )


def read_labelled(source: LabelSource) -> Labelled:
    """All rows of the files. Raises UsageError if a file lacks a column, or a row one of the two values."""
    try:
        parts = [part for uri in source.file_uris for part in _batches(uri, source)]
    except ShardsiftError as error:
        raise UsageError(str(error).replace(THEN_RETRY, "then repeat the command")) from error
    kind = _common_type(parts, source.label_column)
    return Labelled(
        texts=pa.concat_arrays([pa.array([], pa.large_string()), *(part.texts for part in parts)]),
        labels=pa.concat_arrays([pa.array([], kind), *(part.labels.cast(kind) for part in parts)]),
        label_column=source.label_column,
        shown=source.shown,
    )


def _batches(uri: str, source: LabelSource) -> Iterator[Labelled]:
    """Opens a file again with the types of the columns that are read, so that other fields of lines are not looked at."""
    with open_input(uri) as file:
        columns, schema = checked_columns(source, file.schema, uri), file.schema
    types = tuple((name, str(schema.field(name).type)) for name in dict.fromkeys((*columns, source.label_column)))
    first_row = 0
    with open_input(uri, types, only=True) as file, translated(f"Reading {uri}"):
        read = [name for name in file.schema.names if name in {*columns, source.label_column}]
        for batch in file.batches(read, use_threads=False):
            yield _labelled(pa.Table.from_batches([batch]), columns, source, shown_path(uri), first_row)
            first_row += len(batch)


def _labelled(rows: pa.Table, columns: tuple[str, ...], source: LabelSource, file: str, first_row: int) -> Labelled:
    texts = row_texts(rows, columns, template=template_of(source.text_column), pair_column=None)
    labels = rows.column(source.label_column).combine_chunks()
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    _check_filled(texts, first_row, f"Row {{row}} of {file} has no text.")
    _check_filled(labels, first_row, f'Row {{row}} of {file} has no label in "{source.label_column}".')
    if pa.types.is_floating(labels.type):
        finite = pc.if_else(pc.is_finite(labels), labels, None)
        _check_filled(finite, first_row, f"The label of row {{row}} of {file} is not a finite number.")
    return Labelled(
        texts=texts,
        labels=labels,
        label_column=source.label_column,
        shown=file,
    )


def _check_filled(values: pa.Array, first_row: int, message: str) -> None:
    if values.null_count:
        row = first_row + values.is_null().index(True).as_py()
        raise UsageError(f"{message.format(row=row)} Leave such rows out.")


def _common_type(parts: list[Labelled], label_column: str) -> pa.DataType:
    """Integers and fractions are numbers. Raises UsageError for files whose labels are of different kinds."""
    files = {part.labels.type: part.shown for part in reversed(parts)}
    if len(files) == 1:
        return next(iter(files))
    if all(map(is_text, files)):
        return pa.large_string()
    if all(map(pa.types.is_integer, files)):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in files):
        return pa.float64()
    one, other, *_ = reversed(files)
    raise UsageError(
        f'The labels in "{label_column}" are {one} in {files[one]} and {other} in {files[other]}. Store them alike.'
    )


def _target_of(labelled: Labelled, options: TrainOptions) -> Target:
    """What is learned from these labels. Raises UsageError if they do not suit the task, or nothing can be learned."""
    column, kind = labelled.label_column, labelled.labels.type
    has_names = is_text(kind) or pa.types.is_boolean(kind)
    if options.task == "classification" and pa.types.is_floating(kind):
        raise UsageError(
            f'The labels in "{column}" are {kind}, and classes are texts or integers. Use --task regression, or store the '
            "labels as integers."
        )
    if options.task == "regression" and has_names:
        raise UsageError(f'The labels in "{column}" are {kind}, not numbers. Use --task classification.')
    if options.task == "classification" or has_names:
        return Target(classes=_classes(labelled))
    if options.class_weights != "none":
        raise UsageError("--class-weights is for classes. For labels that are integers, add --task classification.")
    if len(labelled.labels.unique()) < 2:
        raise UsageError(f"All labels of {labelled.shown} are {labelled.labels[0]}. There is nothing to learn.")
    return Target()


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


def _are_zero_and_one(labels: pa.Array) -> bool:
    return pa.types.is_integer(labels.type) and set(labels.unique().to_pylist()) == {0, 1}


def _threshold(rows: Rows, chosen: float | None) -> float:
    lowest, highest = float(rows.targets.min()), float(rows.targets.max())
    if chosen is None:
        return (lowest + highest) / 2
    if not lowest < chosen <= highest:
        raise UsageError(
            f"The labels are {lowest:g} to {highest:g}, all on one side of the threshold {chosen:g}. "
            "Name another one with --threshold, or leave it out."
        )
    return chosen


def _learned_and_held_out(
    rows: Rows, target: Target, options: TrainOptions
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers. Classes have the same shares in both parts, as far as their rows allow."""
    from sklearn.model_selection import train_test_split

    held = max(1, round(options.held_out * len(rows)))
    strata = None
    if not target.is_regression:
        counts = np.bincount(rows.targets.astype(np.int64))
        if counts.min() < 2:
            rare = target.classes[int(counts.argmin())]
            raise UsageError(f'Only one row has the class "{rare}". Give two or more of each class.')
        if min(held, len(rows) - held) >= target.outputs:
            strata = rows.targets
    learned, held_out = train_test_split(
        np.arange(len(rows)), test_size=held, random_state=options.seed, stratify=strata
    )
    return learned, held_out
