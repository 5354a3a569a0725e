"""Score texts in this process: `shardsift.score` and `shardsift.load_scorer`. Knows no queue and no Redis."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypedDict, Unpack, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet import scorers
from fleet.choices import Backend, Dtype, Function, Pool
from fleet.columns import ERROR
from fleet.counted import counted
from fleet.defaults import DEFAULT_MODEL
from fleet.errors import ShardError, UsageError
from fleet.keywords import keywords_told, with_keywords, with_keywords_of
from fleet.model import SEQUENCE_CLASSIFIER, Model
from fleet.scoring import Scoring, check_reading
from fleet.settings import read_settings
from fleet.shard import Shard
from fleet.spec import WINDOW_ROWS
from fleet.zero_shot import HYPOTHESIS_TEMPLATE, zero_shot_of
from worker.given_texts import check_is_one_column
from worker.given_texts import windows as windows_of
from worker.scoring import ModelError, Scorer, ScorerInfo, Scores
from worker.scoring.activation import apply
from worker.scoring.quiet import quiet_imports
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import mapped_ahead
from worker.shard.reader import Window
from worker.shard.window_scoring import WindowScoring
from worker.shard.writer import score_columns

Floats = npt.NDArray[np.float32]
_TEXT = "text"
_SHOWN_REVISION = 7  # characters
_NO_SHARD = Shard(name="texts", uri="", identity="")


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `load_scorer`."""

    revision: str | None
    scorer: str
    dtype: Dtype
    device: str | None
    backend: Backend | None
    max_batch_tokens: int | None
    compile: bool | None
    threads: int | None
    parity_rows: int | None


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


def load_scorer(
    model: str | PathLike[str] = DEFAULT_MODEL,
    *,
    revision: str | None = None,
    scorer: str = SEQUENCE_CLASSIFIER,
    dtype: Dtype = "auto",
    device: str | None = None,
    backend: Backend | None = None,
    max_batch_tokens: int | None = None,
    compile: bool | None = None,
    threads: int | None = None,
    parity_rows: int | None = None,
) -> "LoadedScorer":
    """Load a model onto the best device of this machine, to score with it more than once.

    >>> scorer = shardsift.load_scorer("HuggingFaceFW/fineweb-edu-classifier")
    >>> scorer
    <Scorer HuggingFaceFW/fineweb-edu-classifier@abc1234 bfloat16 on cpu, 1 output>
    >>> scores = scorer.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])

    model: a Hub name or a folder.
    revision: branch, tag or commit of a Hub model. Default: the current main.
    scorer: the kind of scorer that loads the model. Packages can add their own: see examples/own_scorer.
    dtype: precision of the model. "auto" is 16 bits if the device is fast at it, otherwise float32.

    The other arguments change the speed, and the scores by rounding only. If one is None, it is read from the environment, as a
    worker reads it: SHARDSIFT_DEVICE, SHARDSIFT_BACKEND and so on. docs/settings.md describes them.

    Like a worker, this scores sample texts in float32 too and refuses a model whose fast scores differ. That takes seconds;
    `parity_rows=0` leaves it out. Raises UsageError if the model cannot be found, loaded or trusted.
    """
    settings = read_settings(
        dtype=dtype,
        device=device,
        backend=backend,
        max_batch_tokens=max_batch_tokens,
        compile=compile,
        threads=threads,
        parity_rows=parity_rows,
    )
    with keywords_told(), _model_errors_told(), quiet_imports():
        scorers.check_requirements([scorers.scorer_kind(scorer)])
        found = scorers.resolve_model(scorer, os.fspath(model), revision)
        pinned = {"scorer": scorer, "model": found.name, "model_revision": found.revision}
        loaded = scorers.load_scorer(found, settings.model_copy(update=pinned))
    return LoadedScorer(model=found, scorer=loaded)


@with_keywords_of(load_scorer)
def score(
    texts: Iterable[str | None],
    model: "str | PathLike[str] | LoadedScorer" = DEFAULT_MODEL,
    *,
    labels: Sequence[str] | None = None,
    hypothesis_template: str = HYPOTHESIS_TEMPLATE,
    multi_label: bool = False,
    max_tokens: int | None = None,
    windows: str = "head",
    pool: Pool = "max",
    function_to_apply: Function | None = None,
    score_blank: bool = False,
    **load_options: Unpack[LoadOptions],
) -> Floats:
    """Score texts with a sequence classifier: a Hub name, a folder, or what `load_scorer` returned.

    >>> scores = shardsift.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    >>> frame["score"] = shardsift.score(frame["text"])

    Returns float32 scores in the order of the texts: shape (rows,) for a model with one output, otherwise (rows, labels), with
    the labels in the order of `load_scorer(model).labels`. A run with the same options publishes the same scores, up to rounding.

    texts: a list, an iterator, a numpy or Arrow array, or a pandas or polars Series. Of a table, pass one column. An iterator
        is read 8,192 texts at a time, so `tqdm(texts)` shows progress.
    model: loaded for this call if it is a name or a folder. To score more than once, load it once with `load_scorer`.
    labels: zero-shot classification: choose from these labels, with a model of natural language inference such as
        facebook/bart-large-mnli. A label's score says how far the text entails `hypothesis_template` with the label in it; the
        scores of a text add up to 1, or with `multi_label=True` each label is judged by itself.
    max_tokens: what the model reads of a text, with special tokens. Default: as many as it takes.
    windows: what is read of a longer text: "head", "head+tail", "head+middle+tail", or "stride:N" for all of it, where a passage
        of `max_tokens` begins every N tokens. `pool` is how the logits of a text's passages become one: "max" or "mean".
    function_to_apply: turns logits into scores. The default is that of a transformers pipeline: softmax for a model with several
        labels, or sigmoid if the model says that a text can have more than one. A single output stays a raw logit.
    score_blank: also score texts of white space only. As in a run, they are not scored by default.
    dtype, device and the others: as for `load_scorer`.

    A row that cannot be scored is NaN: a missing text (None or NaN), a blank text, a text without a token.
    `LoadedScorer.table` says why. Raises TypeError for what is not a column of texts, and UsageError for a model that
    cannot be loaded.
    """
    check_is_one_column(texts)  # before a model is loaded
    if labels is not None:
        _checked_labels(labels)
    if not isinstance(model, LoadedScorer):
        model = load_scorer(model, **load_options)
    elif load_options:
        raise UsageError(f"The scorer is loaded already. Pass {', '.join(load_options)} to load_scorer.")
    return model.score(
        texts,
        labels=labels,
        hypothesis_template=hypothesis_template,
        multi_label=multi_label,
        max_tokens=max_tokens,
        windows=windows,
        pool=pool,
        function_to_apply=function_to_apply,
        score_blank=score_blank,
    )


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
) -> Scoring:
    zero_shot = None
    if labels is None and (multi_label or hypothesis_template != HYPOTHESIS_TEMPLATE):
        raise UsageError("multi_label and hypothesis_template are for labels. Pass labels, or leave them out.")
    if labels is not None:
        with keywords_told():
            zero_shot = zero_shot_of(
                model, _checked_labels(labels), hypothesis_template=hypothesis_template, multi_label=multi_label
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
    _check_function(scoring)
    with keywords_told():
        check_reading(scoring)
    return scoring


def _checked_labels(labels: Sequence[str]) -> Sequence[str]:
    if isinstance(labels, str):
        raise TypeError(f"Expected a list of labels, not a single str. Pass [{labels!r}].")
    if isinstance(labels, (Set, Mapping)) or not isinstance(labels, Iterable):
        raise TypeError(f"Expected a list of labels, whose order is that of the scores, not {type(labels).__name__}.")
    return tuple(labels)


def _check_function(scoring: Scoring) -> None:
    function = scoring.function_to_apply
    if function not in get_args(Function):
        raise UsageError(f"function_to_apply={function!r} is not one of {', '.join(get_args(Function))}.")
    if function == "softmax" and scoring.outputs == 1:
        raise UsageError("Softmax makes every score of a model with one output 1. Apply sigmoid, or none.")


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
        return _scoring(self.model, **options)

    def _scores(self, texts: Iterable[str | None], scoring: Scoring) -> Iterator[Scores]:
        """The logits of each window, computed as those of a shard are: the same code, windows and batches."""
        with _errors_of_reading_told():
            work = WindowScoring(_NO_SHARD, (scoring,), (self.scorer,), Checkpoint({}, lambda first_row, content: None))
        with mapped_ahead(
            lambda window: next(work.prepared([window])), _as_rows(texts), "tokenizer"
        ) as prepared_windows:
            for prepared in prepared_windows:
                (scores,) = work.scores(prepared, _Uninterrupted())
                yield scores


class _Uninterrupted:
    """The `Progress` of work that no other process waits for."""

    def on_batch(self, rows_of_window: int) -> bool:
        return True

    def on_window(self) -> None: ...

    def on_progress(self) -> None: ...

    def check(self) -> None: ...


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


@contextmanager
def _model_errors_told() -> Iterator[None]:
    """What the scoring core says of a model that it cannot serve, as an error of ours."""
    try:
        yield
    except ModelError as error:
        raise UsageError(str(error)) from error
