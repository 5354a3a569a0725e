"""A scorer on a device of this machine, or several, with the scores and columns that a run would publish."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.errors import ShardError, UsageError
from fleet.process.command_line import keywords_told, options_from, with_keywords
from fleet.process.wording import counted
from fleet.run.model import Model
from fleet.run.options import ScoreOptions, options_by_model, recipe_options, scoring_of
from fleet.run.output_columns import ERROR, check_added_columns
from fleet.run.scoring import Scoring, score_column_of
from fleet.run.spec import WINDOW_ROWS, Shard
from worker.api.texts import pair_windows, windows
from worker.scoring import Scorer, ScorerInfo, Scores, apply
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import mapped_ahead
from worker.shard.reader import Window
from worker.shard.vitals import Uninterrupted
from worker.shard.window_scoring import WindowScoring
from worker.shard.writer import row_errors, score_columns

Floats = npt.NDArray[np.float32]
Texts = Iterable[str | None]
TEXT, PAIR = "text", "text_pair"  # names of the columns that a user's texts become
_SHOWN_REVISION = 7  # characters


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedScorer:
    """A scorer on a device of this machine. `load_scorer` returns it."""

    model: Model
    scorer: Scorer[Any]

    def __repr__(self) -> str:
        return f"<Scorer {self._shown}>"

    @property
    def _shown(self) -> str:
        revision = self.model.revision.removeprefix("sha256-")[:_SHOWN_REVISION]
        outputs = counted(len(self.labels), "output")
        return f"{self.model.name}@{revision} {self.info.dtype} on {self.info.device}, {outputs}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each output of the model, in the order of the scores."""
        return self.model.labels

    @property
    def info(self) -> ScorerInfo:
        """Device, precision, backend and batch size, and how far the fast scores are from those in float32."""
        return self.scorer.info

    def score(
        self,
        texts: Texts,
        *,
        text_pairs: Texts | None = None,
        options: ScoreOptions | None = None,
        **keywords: Any,
    ) -> Floats:
        """The scores of texts, as `shardsift.score` returns them; it describes the arguments.

        >>> scorer = shardsift.load_scorer("facebook/bart-large-mnli")
        >>> scorer.score(texts, labels=["climate change", "technology"])  # shape (texts, 2), in the order of the labels
        """
        (scoring,), scored = _scored({"score": self}, texts, text_pairs, options, keywords)
        parts = [_values(scores, scoring) for (scores,) in scored]
        values = np.concatenate([np.empty((0, scoring.outputs), np.float32), *parts])
        return values[:, 0] if scoring.outputs == 1 else values

    def table(
        self,
        texts: Texts,
        *,
        text_pairs: Texts | None = None,
        options: ScoreOptions | None = None,
        **keywords: Any,
    ) -> pa.Table:
        """The columns that a run writes for each row: `score` and `error`, for several labels also `label` and a score of each.

        >>> scorer.table(["The mitochondrion is the powerhouse of the cell.", ""])["error"].to_pylist()
        [None, 'blank text']

        For a model with several labels, `score` is the highest, `label` names its label, and `score_POSITIVE` is the score of the
        label POSITIVE. `int_score` is there if the model's recipe rounds.
        """
        return _as_table(*_scored({"score": self}, texts, text_pairs, options, keywords))


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedScorers:
    """Several scorers on a device of this machine. `load_scorer` returns it for several models.

    As in a run, texts are read once, tokenized once for models that tokenize alike, and the encoder that models have in common
    runs once.
    """

    by_name: Mapping[str, LoadedScorer]

    def __repr__(self) -> str:
        return f"<Scorers {'; '.join(f'{name}: {one._shown}' for name, one in self.by_name.items())}>"

    def table(
        self,
        texts: Texts,
        *,
        text_pairs: Texts | None = None,
        options: ScoreOptions | None = None,
        **keywords: Any,
    ) -> pa.Table:
        """The columns that a run with these models writes for each row, and `error`; `shardsift.score` describes the arguments.

        >>> scorers = shardsift.load_scorer({"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})
        >>> scorers.table(["Buy now!"]).column_names
        ['edu_score', 'int_edu_score', 'tox_score', 'tox_label', 'tox_score_toxic', …, 'error']

        A row that one of the models cannot score has no score from any.
        """
        by_column = {score_column_of(name): one for name, one in self.by_name.items()}
        scorings, scored = _scored(by_column, texts, text_pairs, options, keywords)
        with _arguments_told():
            check_added_columns(scorings)
        return _as_table(scorings, scored)

    score = table  # an array of the scores of several models would not say whose they are


def _scored(
    scorers: Mapping[str, LoadedScorer],
    texts: Texts,
    text_pairs: Texts | None,
    options: ScoreOptions | None,
    keywords: Mapping[str, Any],
) -> tuple[tuple[Scoring, ...], Iterator[tuple[Scores, ...]]]:
    """What the scorers, by their score columns, are asked for, and their logits of each window."""
    models = {column: one.model for column, one in scorers.items()}
    scorings = scorings_of(models, options, keywords, has_pairs=text_pairs is not None)
    return scorings, _scored_windows(texts, text_pairs, scorings, [one.scorer for one in scorers.values()])


def scorings_of(
    models: Mapping[str, Model], options: ScoreOptions | None, keywords: Mapping[str, Any], *, has_pairs: bool
) -> tuple[Scoring, ...]:
    """The scoring of each model, by its score column. Raises TypeError for unknown options, UsageError for wrong ones.

    The recipe's template is the user's to apply, because here a text is put together already.
    """
    with _arguments_told():
        given = options_by_model(models, options_from(options, ScoreOptions, keywords))
        return tuple(
            scoring_of(
                model,
                replace(given[column], **recipe_options(model, given[column], has_pairs=has_pairs)),
                text_columns=(TEXT,),
                text_pair_column=PAIR if has_pairs else None,
                score_column=column,
            )
            for column, model in models.items()
        )


@contextmanager
def _arguments_told() -> Iterator[None]:
    """Name options in errors as the arguments of `score`. What would be a shard's error in a run is the user's here."""
    try:
        with keywords_told():
            yield
    except (ShardError, UsageError) as error:
        raise UsageError(with_keywords(str(error)).replace("text_pair_column", "text_pairs")) from error


def _values(scores: Scores, scoring: Scoring) -> Floats:
    """Scores of shape (rows, outputs). Errored rows are NaN."""
    errored = list(scores.errors)
    values = scores.values.copy()
    values[errored] = 0  # softmax of NaN warns
    values = apply(scoring.function_to_apply, values)
    values[errored] = np.nan
    return values


# Score a user's texts as a worker scores the rows of a shard: with the same code, windows and batches.

_NO_SHARD = Shard(name="texts", uri="", identity="")


def _scored_windows(
    texts: Texts, text_pairs: Texts | None, scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]
) -> Iterator[tuple[Scores, ...]]:
    """The logits of each window by each scoring, in order."""
    with _arguments_told():
        work = WindowScoring(_NO_SHARD, scorings, scorers, Checkpoint({}, lambda first_row, content: None))
    with mapped_ahead(
        lambda window: next(work.prepared([window])), _as_rows(texts, text_pairs), "tokenizer"
    ) as prepared_windows:
        for prepared in prepared_windows:
            yield work.scores(prepared, Uninterrupted())


def _as_table(scorings: Sequence[Scoring], scored: Iterable[tuple[Scores, ...]]) -> pa.Table:
    """The columns that a run writes for each row, and why a row has no score. Without rows it has the same columns."""
    nothing = tuple(Scores(values=np.empty((0, scoring.outputs), np.float32)) for scoring in scorings)
    return pa.concat_tables(_columns(scores, scorings) for scores in (nothing, *scored))


def _columns(scores: tuple[Scores, ...], scorings: Sequence[Scoring]) -> pa.Table:
    errors = row_errors(scores, scorings)
    parts = [score_columns(found, errors, scoring) for found, scoring in zip(scores, scorings, strict=True)]
    reasons = pa.array([errors.get(row) for row in range(len(scores[0].values))], ERROR.type)
    columns = {name: part.column(name) for part in parts for name in part.column_names}
    return pa.table({**columns, ERROR.name: reasons})


def _as_rows(texts: Texts, text_pairs: Texts | None) -> Iterator[Window]:
    first_row = 0
    for columns in _columns_of(texts, text_pairs):
        rows = pa.table(columns)
        yield Window(first_row=first_row, rows=rows)
        first_row += len(rows)


def _columns_of(texts: Texts, text_pairs: Texts | None) -> Iterator[dict[str, pa.LargeStringArray]]:
    if text_pairs is None:
        yield from ({TEXT: column} for column in windows(texts, WINDOW_ROWS))
        return
    for firsts, seconds in pair_windows(texts, text_pairs, WINDOW_ROWS):
        yield {TEXT: firsts, PAIR: seconds}
