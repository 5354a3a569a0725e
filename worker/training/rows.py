"""Read labelled texts from input files, and divide them into rows to learn from and rows to measure on. Knows no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.opening import open_input
from fleet.process.wording import counted
from fleet.run.text import is_text, row_texts, template_of, text_digest
from fleet.storage.errors import translated
from worker.training.labels import LabelSource, checked_columns, shown_path
from worker.training.options import TrainOptions

Targets = NDArray[np.float64] | NDArray[np.int64]  # one per row: the number, or the index of the class
_FEWEST_ROWS = 20


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
    """The output that a classifier is trained for: a number, or one of some classes.

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
        files = [_read(uri, source) for uri in source.file_uris]
        rows = pa.concat_tables(files, promote_options="permissive")
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    except pa.ArrowTypeError as error:
        raise UsageError(
            f'The labels in "{source.label_column}" of {source.shown} are not alike: {error}. Store them alike.'
        ) from error
    return Labelled(
        texts=rows["text"].combine_chunks(),
        labels=rows["label"].combine_chunks(),
        label_column=source.label_column,
        shown=source.shown,
    )


def _read(uri: str, source: LabelSource) -> pa.Table:
    """Texts and labels of a file, which is opened again so that only its columns that are read are looked at."""
    with open_input(uri) as file:
        columns, schema = checked_columns(source, file.schema, uri), file.schema
    read = tuple(dict.fromkeys((*columns, source.label_column)))
    types = tuple((name, str(schema.field(name).type)) for name in read)
    with open_input(uri, types, only=True) as file, translated(f"Reading {uri}"):
        names = [name for name in file.schema.names if name in read]
        batches = list(file.batches(names, use_threads=False))
        rows = pa.Table.from_batches(batches, pa.schema([file.schema.field(name) for name in names]))
    texts = row_texts(rows, columns, template=template_of(source.text_column), pair_column=None)
    labels = rows[source.label_column].combine_chunks()
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    _check_filled(texts, f"of {shown_path(uri)} has no text")
    _check_filled(labels, f'of {shown_path(uri)} has no label in "{source.label_column}"')
    if pa.types.is_floating(labels.type):
        _check_filled(pc.if_else(pc.is_finite(labels), labels, None), f"of {shown_path(uri)} has no finite number")
    return pa.table({"text": texts, "label": labels})


def _check_filled(values: pa.Array, problem: str) -> None:
    if values.null_count:
        raise UsageError(f"Row {values.is_null().index(True).as_py()} {problem}. Leave such rows out.")


def _target_of(labelled: Labelled, options: TrainOptions) -> Target:
    """Decide what is learned from these labels. Raises UsageError if they do not suit the task, or nothing can be learned."""
    column, kind = labelled.label_column, labelled.labels.type
    has_names = is_text(kind) or pa.types.is_boolean(kind)
    if options.task == "classification" and pa.types.is_floating(kind):
        raise UsageError(
            f'The labels in "{column}" are {kind}, and classes are texts or integers. Use --task regression, or store the '
            "labels as integers."
        )
    if options.task == "regression" and has_names:
        raise UsageError(f'The labels in "{column}" are {kind}, not numbers. Use --task classification.')
    values = labelled.labels.unique()
    if len(values) < 2:
        raise UsageError(f"All labels of {labelled.shown} are {values[0]}. There is nothing to learn.")
    if options.task == "classification" or has_names:
        return Target(classes=tuple(map(str, sorted(values.to_pylist()))))  # in this order, the integer 10 follows 9
    return Target()


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


def _learned_and_held_out(rows: Rows, target: Target, options: TrainOptions) -> list[NDArray[np.int64]]:
    """Row numbers. Classes have the same shares in both parts."""
    from sklearn.model_selection import train_test_split

    try:
        parts: list[NDArray[np.int64]] = train_test_split(
            np.arange(len(rows)),
            test_size=max(1, round(options.held_out * len(rows))),
            random_state=options.seed,
            stratify=None if target.is_regression else rows.targets,
        )
    except ValueError as error:
        raise UsageError(f"No rows can be held out: {error} Give more rows of each class, or --validation.") from error
    return parts
