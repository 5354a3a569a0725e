"""A scorer on a device of this machine, with the scores and columns that a run would publish. `load_scorer` returns it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.choices import Function, Pool
from fleet.columns import ERROR
from fleet.counted import counted
from fleet.errors import ShardError, UsageError
from fleet.keywords import keywords_told, with_keywords, with_keywords_of
from fleet.model import SEQUENCE_CLASSIFIER, Model
from fleet.recipes import recipe_of
from fleet.scoring import Scoring, check_scoring
from fleet.shard import Shard
from fleet.spec import WINDOW_ROWS
from fleet.zero_shot import HYPOTHESIS_TEMPLATE, zero_shot_of
from worker.given_texts import windows as windows_of
from worker.scoring import Scorer, ScorerInfo, Scores
from worker.scoring.activation import apply
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import mapped_ahead
from worker.shard.progress import Uninterrupted
from worker.shard.reader import Window
from worker.shard.window_scoring import WindowScoring
from worker.shard.writer import score_columns

Floats = npt.NDArray[np.float32]
_TEXT = "text"
_SHOWN_REVISION = 7  # characters
_NO_SHARD = Shard(name="texts", uri="", identity="")


class ScoreOptions(TypedDict, total=False):
    """The keyword arguments of `LoadedScorer.score` and `table`; `shardsift.score` describes them."""

    labels: Sequence[str] | None
    hypothesis_template: str
    multi_label: bool
    max_tokens: int | None
    windows: str
    pool: Pool
    function_to_apply: Function | None
    score_blank: bool
    no_recipe: bool


def _scoring(
    model: Model,
    *,
    labels: Sequence[str] | None = None,
    hypothesis_template: str = HYPOTHESIS_TEMPLATE,
    multi_label: bool = False,
    max_tokens: int | None = None,
    windows: str = "head",
    pool: Pool = "max",
    function_to_apply: Function | None = None,
    score_blank: bool = False,
    no_recipe: bool = False,  # see `_with_recipe`
) -> Scoring:
    zero_shot = None
    if labels is None and (multi_label or hypothesis_template != HYPOTHESIS_TEMPLATE):
        raise UsageError("multi_label and hypothesis_template are for labels. Pass labels, or leave them out.")
    if labels is not None:
        with keywords_told():
            zero_shot = zero_shot_of(
                model, checked_labels(labels), hypothesis_template=hypothesis_template, multi_label=multi_label
            )
    scoring = Scoring(
        model=model,
        dtype="auto",
        text_columns=(_TEXT,),
        score_column="score",
        function_to_apply=function_to_apply or (zero_shot.function if zero_shot else model.function),
        score_blank=score_blank,
        max_tokens=max_tokens,
        passages=windows,
        pool=pool,
        zero_shot=zero_shot,
    )
    with keywords_told():
        check_scoring(scoring)
    return scoring


def _with_recipe(model: Model, options: ScoreOptions) -> ScoreOptions:
    """The options, with those of the model's recipe that are at their defaults, as producer/recipes.py does for a run.

    The recipe's template is the user's to apply, because here a text is put together already.
    """
    recipe = None if options.get("no_recipe") or model.is_folder else recipe_of(model.name)
    is_with_labels = options.get("labels") is not None
    if recipe is None or model.scorer != SEQUENCE_CLASSIFIER or is_with_labels != (recipe.task == "zero-shot"):
        return options
    defaults = {parameter.name: parameter.default for parameter in signature(_scoring).parameters.values()}
    filled = {
        name: value
        for name, value in recipe.options.items()
        if name in defaults and options.get(name, defaults[name]) == defaults[name]
    }
    return cast("ScoreOptions", {**options, **filled})


def checked_labels(labels: Sequence[str]) -> Sequence[str]:
    if isinstance(labels, str):
        raise TypeError(f"Expected a list of labels, not a single str. Pass [{labels!r}].")
    if isinstance(labels, (Set, Mapping)) or not isinstance(labels, Iterable):
        raise TypeError(f"Expected a list of labels, whose order is that of the scores, not {type(labels).__name__}.")
    return tuple(labels)


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedScorer:
    """A scorer on a device of this machine. `load_scorer` returns it."""

    model: Model
    scorer: Scorer[Any]

    def __repr__(self) -> str:
        revision = self.model.revision.removeprefix("sha256-")[:_SHOWN_REVISION]
        outputs = counted(len(self.labels), "output")
        return f"<Scorer {self.model.name}@{revision} {self.info.dtype} on {self.info.device}, {outputs}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each output of the model, in the order of the scores."""
        return self.model.labels

    @property
    def info(self) -> ScorerInfo:
        """Device, precision, backend and batch size, and how far the fast scores are from those in float32."""
        return self.scorer.info

    @with_keywords_of(_scoring)
    def score(self, texts: Iterable[str | None], **options: Unpack[ScoreOptions]) -> Floats:
        """The scores of texts, as `shardsift.score` returns them; it describes the arguments.

        >>> scorer = shardsift.load_scorer("facebook/bart-large-mnli")
        >>> scorer.score(texts, labels=["climate change", "technology"])  # shape (texts, 2), in the order of the labels
        """
        scoring = self._scoring(options)
        parts = [_values(scores, scoring) for scores in self._scores(texts, scoring)]
        values = np.concatenate([np.empty((0, scoring.outputs), np.float32), *parts])
        return values[:, 0] if scoring.outputs == 1 else values

    @with_keywords_of(_scoring)
    def table(self, texts: Iterable[str | None], **options: Unpack[ScoreOptions]) -> pa.Table:
        """The columns that a run writes for each row: `score` and `error`, for several labels also `label` and a score of each.

        >>> scorer.table(["The mitochondrion is the powerhouse of the cell.", ""])["error"].to_pylist()
        [None, 'blank text']

        For a model with several labels, `score` is the highest, `label` names its label, and `score_POSITIVE` is the score of the
        label POSITIVE.
        """
        scoring = self._scoring(options)
        nothing = Scores(values=np.empty((0, scoring.outputs), np.float32))
        return pa.concat_tables(_columns(scores, scoring) for scores in (nothing, *self._scores(texts, scoring)))

    def _scoring(self, options: ScoreOptions) -> Scoring:
        if unknown := options.keys() - ScoreOptions.__annotations__.keys():
            known = ", ".join(ScoreOptions.__annotations__)
            raise TypeError(f"There is no argument {min(unknown)!r}. Those of score and table are: {known}.")
        return _scoring(self.model, **_with_recipe(self.model, options))

    def _scores(self, texts: Iterable[str | None], scoring: Scoring) -> Iterator[Scores]:
        """The logits of each window, computed as those of a shard are: the same code, windows and batches."""
        with _errors_of_reading_told():
            work = WindowScoring(_NO_SHARD, (scoring,), (self.scorer,), Checkpoint({}, lambda first_row, content: None))
        with mapped_ahead(
            lambda window: next(work.prepared([window])), _as_rows(texts), "tokenizer"
        ) as prepared_windows:
            for prepared in prepared_windows:
                (scores,) = work.scores(prepared, Uninterrupted())
                yield scores


def _as_rows(texts: Iterable[str | None]) -> Iterator[Window]:
    first_row = 0
    for column in windows_of(texts, WINDOW_ROWS):
        yield Window(first_row=first_row, rows=pa.table({_TEXT: column}))
        first_row += len(column)


def _values(scores: Scores, scoring: Scoring) -> Floats:
    """Scores of shape (rows, outputs). Errored rows are NaN."""
    errored = list(scores.errors)
    values = scores.values.copy()
    values[errored] = 0  # softmax of NaN warns
    values = apply(scoring.function_to_apply, values)
    values[errored] = np.nan
    return values


def _columns(scores: Scores, scoring: Scoring) -> pa.Table:
    reasons = pa.array([scores.errors.get(row) for row in range(len(scores.values))], ERROR.type)
    return score_columns(scores, scores.errors, scoring).append_column(ERROR, reasons)


@contextmanager
def _errors_of_reading_told() -> Iterator[None]:
    """Here it is a usage error if the model cannot read texts as asked. In a run it is the shard's."""
    try:
        with keywords_told():
            yield
    except ShardError as error:
        raise UsageError(with_keywords(str(error))) from error
