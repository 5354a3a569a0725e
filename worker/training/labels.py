"""Where the labelled texts of a training are: files, or the output of a run whose scores are the labels. Knows no torch."""

from dataclasses import dataclass, replace

import pyarrow as pa

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.listing import list_files
from fleet.run.choices import DEFAULT_LABEL_COLUMN, DEFAULT_TEXT_COLUMN
from fleet.run.columns import is_text
from fleet.run.scorers import published_run
from fleet.run.scoring import Scoring
from fleet.run.text import text_columns
from fleet.storage.opening import Published
from worker.training.spec import TrainSpec


@dataclass(frozen=True, kw_only=True)
class LabelledText:
    """Which text of a row is learned, as `fleet/run/text.py` reads it."""

    text_column: str = DEFAULT_TEXT_COLUMN  # or several, with commas between them, or a template
    text_pair_column: str | None = None
    columns: str | None = None


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """The scoring of a published run that gave the labels."""

    run_id: str
    model: str  # as its manifest discloses it
    revision: str


@dataclass(frozen=True, kw_only=True)
class LabelSource:
    """Labelled rows. The files are in name order, so that the same files always give the same rows in the same order."""

    shown: str  # what the user named, for messages
    file_uris: tuple[str, ...]
    text: LabelledText
    label_column: str
    score_column: str | None = None  # if some rows are left out: says how sure a label is
    least_score: float | None = None  # in that column; rows below it are left out
    teacher: Teacher | None = None

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The column of the label, and the one that says how sure it is, if that is asked."""
        return (self.label_column, self.score_column) if self.score_column else (self.label_column,)

    def beside(self, uri: str) -> "LabelSource":
        """Other files with the same columns, whose labels are taken as they are."""
        return replace(
            self, shown=uri, file_uris=_files(uri, "--validation"), score_column=None, least_score=None, teacher=None
        )


def label_source(spec: TrainSpec) -> LabelSource:
    """What a training learns from. Raises UsageError if there is nothing, or the spec does not say which labels."""
    if (spec.data_uri is None) == (spec.label_with is None):
        raise UsageError("Say what to learn from: either --data FILES or --label-with RUN.")
    if spec.label_with is not None:
        return _of_run(spec, spec.label_with)
    if spec.min_label_score is not None:
        raise UsageError(
            "--min-label-score is about the scores of a run. Leave it out, or name a run with --label-with."
        )
    assert spec.data_uri is not None
    return LabelSource(
        shown=spec.data_uri,
        file_uris=_files(spec.data_uri, "--data"),
        text=LabelledText(text_column=spec.text_column or DEFAULT_TEXT_COLUMN),
        label_column=spec.label_column or DEFAULT_LABEL_COLUMN,
    )


def checked_columns(source: LabelSource, schema: pa.Schema, uri: str) -> tuple[str, ...]:
    """The columns of a file's texts. Raises UsageError if it lacks one of those, or one with labels or their scores."""
    columns = text_columns(source.text, schema, uri, called=shown_path(uri))
    for name in source.label_columns:
        _check_label(schema, shown_path(uri), name)
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


def _of_run(spec: TrainSpec, uri: str) -> LabelSource:
    """The kept rows of a published run: only these have their texts in its output."""
    published = published_run(uri)
    scoring = _scoring(published, spec.label_column)
    if spec.min_label_score is not None and scoring.outputs == 1 and spec.label_column is None:
        raise UsageError(
            f"--min-label-score is about labels, and {scoring.score_column} of {uri} is a number that is learned itself. "
            "Leave it out."
        )
    return LabelSource(
        shown=uri,
        file_uris=tuple(sorted(f"{published.uri.rstrip('/')}/{receipt.data.path}" for receipt in published.receipts)),
        text=_text(spec, scoring, uri),
        label_column=spec.label_column or _learned(scoring),
        score_column=None if spec.min_label_score is None else scoring.score_column,
        least_score=spec.min_label_score,
        teacher=Teacher(run_id=published.run_id, model=scoring.model.name, revision=scoring.model.revision),
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


def _text(spec: TrainSpec, scoring: Scoring, uri: str) -> LabelledText:
    if spec.text_column is not None:
        return LabelledText(text_column=spec.text_column)
    if scoring.text_pair_column is not None:
        raise UsageError(
            f"The run at {uri} has scored pairs of texts, and `worker train` learns single ones. Name one with --text-column."
        )
    if scoring.text_template is not None:
        return LabelledText(text_column=scoring.text_template)
    return LabelledText(text_column=",".join(scoring.text_columns))
