"""Find the labelled texts of a training: in files, or in the output of a run whose scores are the labels. Knows no torch."""

from dataclasses import dataclass, replace

import pyarrow as pa

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.listing import list_files
from fleet.run.choices import DEFAULT_LABEL_COLUMN, DEFAULT_TEXT_COLUMN
from fleet.run.scorers import published_run
from fleet.run.scoring import Scoring
from fleet.run.text import is_text, text_columns
from fleet.storage.opening import Published
from worker.training.options import TrainOptions


@dataclass(frozen=True, kw_only=True)
class LabelSource:
    """Labelled rows. The files are in name order, so that the same files always give the same rows in the same order.

    The columns are those of a text as `fleet/run/text.py` reads it.
    """

    shown: str  # what the user named, for messages
    file_uris: tuple[str, ...]
    text_column: str = DEFAULT_TEXT_COLUMN  # or several, with commas between them, or a template
    text_pair_column: str | None = None
    columns: str | None = None
    label_column: str
    teacher: str | None = None  # the model of a published run that gave the labels

    def beside(self, uri: str) -> "LabelSource":
        """Other files with the same columns, whose labels are taken as they are."""
        return replace(self, shown=uri, file_uris=_files(uri, "--validation"), teacher=None)


def label_source(options: TrainOptions) -> LabelSource:
    """Find the labels of a training. Raises UsageError if there is nothing, or the options do not say which labels."""
    if (options.data is None) == (options.label_with is None):
        raise UsageError("Say what to learn from: either --data FILES or --label-with OUTPUT.")
    if options.label_with is not None:
        return _of_run(options, options.label_with)
    assert options.data is not None
    return LabelSource(
        shown=options.data,
        file_uris=_files(options.data, "--data"),
        text_column=options.text_column or DEFAULT_TEXT_COLUMN,
        label_column=options.label_column or DEFAULT_LABEL_COLUMN,
    )


def checked_columns(source: LabelSource, schema: pa.Schema, uri: str) -> tuple[str, ...]:
    """The columns of a file's texts. Raises UsageError if it lacks one of those, or the one with the labels."""
    columns = text_columns(source, schema, uri, called=shown_path(uri))
    _check_label(schema, shown_path(uri), source.label_column)
    return columns


def shown_path(uri: str) -> str:
    return uri.removeprefix("file://")


def _check_label(schema: pa.Schema, file: str, name: str) -> None:
    if name not in schema.names:
        raise UsageError(
            f'{file} has no column "{name}"; it has: {", ".join(schema.names)}. Name one with --label-column.'
        )
    kind = schema.field(name).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        raise UsageError(f'The column "{name}" of {file} holds {kind}, not numbers or texts.')


def _files(uri: str, option: str) -> tuple[str, ...]:
    try:
        return tuple(list_files(uri, option=option).uris)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"{uri} cannot be read: {error}.") from error


def _of_run(options: TrainOptions, uri: str) -> LabelSource:
    """The kept rows of a published run: only these have their texts in its output."""
    published = published_run(uri)
    scoring = _scoring(published, options.label_column)
    return LabelSource(
        shown=uri,
        file_uris=tuple(sorted(f"{published.uri.rstrip('/')}/{receipt.data.path}" for receipt in published.receipts)),
        text_column=_text_column(options, scoring, uri),
        label_column=options.label_column or _learned(scoring),
        teacher=scoring.model.name,
    )


def _scoring(published: Published, label_column: str | None) -> Scoring:
    """The scoring of a run's only model, or of the one that has added the column."""
    scorings = published.spec.scorings
    for scoring in scorings:
        if len(scorings) == 1 or label_column in scoring.added_columns:
            return scoring
    raise UsageError(
        f"The run at {published.uri} has {len(scorings)} models. Name what to learn with --label-column: "
        f"{' or '.join(map(_learned, scorings))}."
    )


def _learned(scoring: Scoring) -> str:
    return scoring.label_column if scoring.outputs > 1 else scoring.score_column


def _text_column(options: TrainOptions, scoring: Scoring, uri: str) -> str:
    if options.text_column is not None:
        return options.text_column
    if scoring.text_pair_column is not None:
        raise UsageError(
            f"The run at {uri} has scored pairs of texts, and `worker train` learns single ones. Name one with --text-column."
        )
    return scoring.text_template or ",".join(scoring.text_columns)
