"""Read labelled texts, and split them into rows to learn from and rows to measure on. Imports no torch.

Rows come from files, or from the output of a run, with the run's scores as labels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.open_input import list_files, open_input
from shardsift.fleet.process.wording import counted, first_of
from shardsift.fleet.run.choices import DEFAULT_LABEL_COLUMN, DEFAULT_TEXT_COLUMN
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.text import is_text, row_texts, template_of, text_columns, text_digest
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.open_output import Published
from shardsift.worker.training.train_options import TrainOptions

Targets = NDArray[np.float64] | NDArray[np.int64]  # one per row: the number, or the index of its class
_FEWEST_ROWS = 20
_NAMED_CLASSES = 5


@dataclass(frozen=True, kw_only=True)
class LabelSource:
    """The files and columns of labelled rows. Files are in name order, so that the order of rows is always the same.

    The fields for text columns mean the same as in `TextOptions` of `shardsift/fleet/run/text.py`.
    """

    shown: str  # the user's own words, for messages
    file_uris: tuple[str, ...]
    text_column: str = DEFAULT_TEXT_COLUMN  # or several separated by commas, or a template
    text_pair_column: str | None = None
    columns: str | None = None
    label_column: str
    teacher: str | None = None  # the model that gave the labels in a published run


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts with one label each, without nulls."""

    texts: pa.LargeStringArray
    labels: pa.Array  # numbers, texts or booleans

    @property
    def digest(self) -> str:
        """A digest of the rows in order. It does not depend on how they are divided into files."""
        return f"{self.labels.type} {text_digest(self.texts)} {text_digest(self.labels.cast(pa.large_string()))}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a training: a number, or one of several classes.

    `classes` has their names in the order of the outputs; it is empty for a regression.
    """

    classes: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        return not self.classes

    @property
    def config(self) -> dict[str, Any]:
        names = self.classes or ("score",)
        return {
            "problem_type": "regression" if self.is_regression else "single_label_classification",
            "id2label": dict(enumerate(names)),
            "label2id": {name: index for index, name in enumerate(names)},
        }

    def of(self, labels: pa.Array, shown: str) -> Targets:
        """Convert labels to targets. Raises UsageError for an unknown class, with `shown` as the name of the labels."""
        if self.is_regression:
            numbers: Targets = labels.cast(pa.float64()).to_numpy()
            return numbers
        names = pa.array(map(str, labels.to_pylist()), pa.string())
        indices = pc.index_in(names, pa.array(self.classes))
        if indices.null_count:
            unknown = min(names.filter(indices.is_null()).to_pylist())
            raise UsageError(f'{shown} has the class "{unknown}", which no row has that is trained on.')
        classes: Targets = indices.to_numpy().astype(np.int64)
        return classes


@dataclass(frozen=True, kw_only=True)
class Examples:
    texts: pa.LargeStringArray
    targets: Targets

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        return Examples(texts=self.texts.take(pa.array(rows)), targets=self.targets[rows])


@dataclass(frozen=True, kw_only=True)
class Split:
    target: Target
    threshold: float | None  # for a regression
    could_be_classes: bool  # whether the labels are the integers 0 and 1, learned as numbers
    learned: Examples
    held_out: Examples
    rows: int  # in the data, including held-out ones
    data_digest: str
    validation_digest: str | None  # of the separate validation rows, if there are any


# Find the labels.


def label_source(options: TrainOptions) -> LabelSource:
    """Find the labels of a training. Raises UsageError if there are none, or the options do not say which labels to use."""
    if options.data is not None and options.label_with is None:
        return LabelSource(
            shown=options.data,
            file_uris=_files(options.data, "--data"),
            text_column=options.text_column or DEFAULT_TEXT_COLUMN,
            label_column=options.label_column or DEFAULT_LABEL_COLUMN,
        )
    if options.label_with is not None and options.data is None:
        return _of_run(options, options.label_with)
    raise UsageError("Say what to learn from: either --data FILES or --label-with OUTPUT.")


def _files(uri: str, option: str) -> tuple[str, ...]:
    try:
        return tuple(list_files(uri, option=option).uris)
    except ShardError as error:
        raise UsageError(str(error)) from error
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"{uri} cannot be read: {error}.") from error


def _of_run(options: TrainOptions, uri: str) -> LabelSource:
    """Take the labels from the kept rows of a published run. The texts of other rows are not in its output."""
    published = published_run(uri)
    scoring = _scoring(published, options.label_column)
    return LabelSource(
        shown=uri,
        file_uris=tuple(sorted({f"{published.uri.rstrip('/')}/{receipt.data.path}" for receipt in published.receipts})),
        text_column=options.text_column or _text_column(scoring, uri),
        label_column=options.label_column or _learned(scoring),
        teacher=scoring.model.name,
    )


def _scoring(published: Published, label_column: str | None) -> Scoring:
    scorings = published.spec.scorings
    for scoring in scorings:
        if len(scorings) == 1 or label_column in scoring.output_columns:
            return scoring
    raise UsageError(
        f"The run at {published.uri} has {len(scorings)} models. Name what to learn with --label-column: "
        f"{' or '.join(map(_learned, scorings))}."
    )


def _learned(scoring: Scoring) -> str:
    return scoring.label_column if scoring.outputs > 1 else scoring.score_column


def _text_column(scoring: Scoring, uri: str) -> str:
    if scoring.text_pair_column is not None:
        raise UsageError(
            f"The run at {uri} has scored pairs of texts, and `worker train` learns single ones. Name one with --text-column."
        )
    return scoring.text_template or ",".join(scoring.text_columns)


# Read the rows.


def read_split(options: TrainOptions, source: LabelSource) -> Split:
    """Read and check the labelled rows. The same options and rows always give the same split."""
    labelled = read_labelled(source)
    texts, labels = labelled.texts, labelled.labels
    if len(texts) < _FEWEST_ROWS:
        raise UsageError(
            f"{source.shown} has {counted(len(texts), 'row')}, too few to train on. Give {_FEWEST_ROWS} or more."
        )
    target = _target_of(labels, source, options)
    every = Examples(texts=texts, targets=target.of(labels, source.shown))
    if options.threshold is not None and not target.is_regression:
        raise UsageError("--threshold is for labels that are numbers, and these are classes. Leave it out.")
    threshold = _threshold(every, options.threshold) if target.is_regression else None
    measured = None
    if options.validation is None:
        learned, held_out = map(every.take, _learned_and_held_out(every, target, options))
    else:
        uris = _files(options.validation, "--validation")
        measured = read_labelled(replace(source, shown=options.validation, file_uris=uris))
        targets = target.of(measured.labels, options.validation)
        learned, held_out = every, Examples(texts=measured.texts, targets=targets)
    return Split(
        target=target,
        threshold=threshold,
        could_be_classes=target.is_regression and _are_zero_and_one(labels),
        learned=learned,
        held_out=held_out,
        rows=len(texts),
        data_digest=labelled.digest,
        validation_digest=measured.digest if measured else None,
    )


def read_labelled(source: LabelSource) -> Labelled:
    """Read all rows of the files. Raises UsageError if a file lacks a column, or a row lacks its text or its label."""
    try:
        rows = pa.concat_tables([_read(uri, source) for uri in source.file_uris], promote_options="permissive")
    except ShardError as error:
        raise UsageError(str(error)) from error
    except pa.ArrowTypeError as error:
        raise UsageError(
            f'The labels in "{source.label_column}" of {source.shown} are not alike: {error}. Store them alike.'
        ) from error
    return Labelled(texts=rows["text"].combine_chunks(), labels=rows["label"].combine_chunks())


def _read(uri: str, source: LabelSource) -> pa.Table:
    """Read texts and labels from a file.

    Opens the file first for its schema, then with only the needed columns, so that no other column is checked.
    """
    shown = uri.removeprefix("file://")
    with open_input(uri) as file:
        schema = file.schema
    columns = text_columns(source, schema, uri, called=shown)
    _check_label(schema, shown, source.label_column)
    read = tuple(dict.fromkeys((*columns, source.label_column)))
    types = tuple((name, str(schema.field(name).type)) for name in read)
    with open_input(uri, types, only=True) as file, translated(f"Reading {uri}"):
        names = [name for name in file.schema.names if name in read]
        batches = list(file.batches(names, use_threads=False))
        rows = pa.Table.from_batches(batches, pa.schema([file.schema.field(name) for name in names]))
    texts = row_texts(rows, columns, template=template_of(source.text_column), pair_column=None)
    labels = rows[source.label_column].combine_chunks()
    labels = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    _check_filled(texts, f"of {shown} has no text")
    _check_filled(labels, f'of {shown} has no label in "{source.label_column}"')
    if pa.types.is_floating(labels.type):
        _check_filled(pc.if_else(pc.is_finite(labels), labels, None), f"of {shown} has no finite number")
    return pa.table({"text": texts, "label": labels})


def _check_label(schema: pa.Schema, file: str, name: str) -> None:
    if name not in schema.names:
        raise UsageError(
            f'{file} has no column "{name}"; it has: {", ".join(schema.names)}. Name one with --label-column.'
        )
    kind = schema.field(name).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        raise UsageError(f'The column "{name}" of {file} holds {kind}, not numbers or texts.')


def _check_filled(values: pa.Array, problem: str) -> None:
    if values.null_count:
        raise UsageError(f"Row {values.is_null().index(True).as_py()} {problem}. Leave such rows out.")


def _target_of(labels: pa.Array, source: LabelSource, options: TrainOptions) -> Target:
    """Decide what to learn from these labels. Raises UsageError if they do not suit the task, or are all equal."""
    column, kind = source.label_column, labels.type
    has_names = is_text(kind) or pa.types.is_boolean(kind)
    if options.task == "classification" and pa.types.is_floating(kind):
        raise UsageError(
            f'The labels in "{column}" are {kind}, and classes are texts or integers. Use --task regression, or store the '
            "labels as integers."
        )
    if options.task == "regression" and has_names:
        raise UsageError(f'The labels in "{column}" are {kind}, not numbers. Use --task classification.')
    values = labels.unique()
    if len(values) < 2:
        raise UsageError(f"All labels of {source.shown} are {values[0]}. There is nothing to learn.")
    if options.task == "classification" or has_names:
        return Target(classes=tuple(map(str, sorted(values.to_pylist()))))  # sorted as numbers: 10 follows 9
    return Target()


def _are_zero_and_one(labels: pa.Array) -> bool:
    return pa.types.is_integer(labels.type) and set(labels.unique().to_pylist()) == {0, 1}


def _threshold(rows: Examples, chosen: float | None) -> float:
    lowest, highest = float(rows.targets.min()), float(rows.targets.max())
    if chosen is None:
        return (lowest + highest) / 2
    if not lowest < chosen <= highest:
        raise UsageError(
            f"The labels are {lowest:g} to {highest:g}, all on one side of the threshold {chosen:g}. "
            "Name another one with --threshold, or leave it out."
        )
    return chosen


def _learned_and_held_out(rows: Examples, target: Target, options: TrainOptions) -> list[NDArray[np.int64]]:
    """Choose the rows to learn from and the rows to hold out, by index. Both have the same shares of classes."""
    from sklearn.model_selection import train_test_split

    held_out = max(1, round(options.held_out * len(rows)))
    if target.classes:
        counts = np.bincount(rows.targets.astype(np.int64), minlength=len(target.classes))
        if rare := [name for name, count in zip(target.classes, counts, strict=True) if count < 2]:
            raise UsageError(
                f"These classes have a single row: {first_of(rare, _NAMED_CLASSES)}. Each needs two, one to learn from and "
                "one to measure on. Leave such rows out, give more, or give --validation."
            )
        if min(held_out, len(rows) - held_out) < len(target.classes):
            raise UsageError(
                f"{held_out:,} of {counted(len(rows), 'row')} would be held out, and each part needs a row of each of "
                f"{len(target.classes):,} classes. Choose another --held-out, or give more rows or --validation."
            )
    parts: list[NDArray[np.int64]] = train_test_split(
        np.arange(len(rows)),
        test_size=held_out,
        random_state=options.seed,
        stratify=None if target.is_regression else rows.targets,
    )
    return parts
