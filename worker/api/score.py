"""Score texts in this process: `shardsift.score` and `shardsift.load_scorer`. Knows no queue and no Redis.

Texts are scored with the same code, windows and batches as the rows of a shard.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, cast, overload

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.process.keywords import Location, keyword_errors, options_from, with_keywords
from shardsift.fleet.process.settings import read_settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.choices import DEFAULT_MODEL, BackendName, Dtype
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from shardsift.fleet.run.options import (
    ScoreKeywords,
    ScoreOptions,
    completed_options,
    scoring_of,
    split_at_commas,
)
from shardsift.fleet.run.output_columns import ERROR, check_output_columns
from shardsift.fleet.run.scoring import Scoring, check_names_differ, score_column_of
from shardsift.fleet.run.spec import WINDOW_ROWS, Shard
from shardsift.fleet.scorers.kinds import check_requirements, resolve_models, scorer_kind
from shardsift.worker.api.texts import aligned_windows, check_are_columns
from shardsift.worker.scoring import Floats, ModelError, Scorer, ScorerInfo, Scores, apply
from shardsift.worker.scoring.quiet import quiet_imports
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.pipelining import mapped_ahead
from shardsift.worker.shard.reader import Window
from shardsift.worker.shard.scoring_groups import load_scorers, sharing_scorers
from shardsift.worker.shard.vitals import Progress
from shardsift.worker.shard.window_scoring import WindowScoring
from shardsift.worker.shard.writer import row_errors, score_columns

Texts = Iterable[str | None]
TEXT, PAIR = "text", "text_pair"  # column names for a user's texts


class LoadKeywords(TypedDict, total=False):
    scorer: str
    dtype: Dtype
    device: str | None
    backend: BackendName | None
    max_batch_tokens: int | None
    compile: bool | None
    threads: int | None
    parity_rows: int | None


class LoadAndScoreKeywords(LoadKeywords, ScoreKeywords, total=False):
    """The keyword arguments of `score`."""


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
        """Device, precision, backend and batch size, and how much the scores differ from those in float32."""
        return self.scorer.info

    def score(self, texts: Texts, *, text_pairs: Texts | None = None, **keywords: Unpack[ScoreKeywords]) -> Floats:
        """Score texts. See `shardsift.score` for the arguments and the result.

        >>> scorer = shardsift.load_scorer("facebook/bart-large-mnli")
        >>> scorer.score(texts, labels=["climate change", "technology"])  # shape (texts, 2), in the order of the labels
        """
        (scoring,), scored = _scored({"score": self}, texts, text_pairs, keywords)
        parts = [_values(scores, scoring) for (scores,) in scored]
        values = np.concatenate([np.empty((0, scoring.outputs), np.float32), *parts])
        return values[:, 0] if scoring.outputs == 1 else values

    def table(self, texts: Texts, *, text_pairs: Texts | None = None, **keywords: Unpack[ScoreKeywords]) -> pa.Table:
        """Score texts into the columns of a run: `score`, `error` and, for several labels, `label` and each score.

        >>> scorer.table(["The mitochondrion is the powerhouse of the cell.", ""])["error"].to_pylist()
        [None, 'blank text']

        For a model with several labels, `score` is the highest score, `label` is its label, and `score_POSITIVE` is the
        score of the label POSITIVE. `int_score` is there if the model's recipe rounds.
        """
        return _as_table(*_scored({"score": self}, texts, text_pairs, keywords))


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedScorers:
    """Several scorers on a device of this machine. `load_scorer` returns it for several models.

    As in a run, texts are read once, they are tokenized once for models with equal tokenizers, and an encoder that
    models share runs once.
    """

    by_name: Mapping[str, LoadedScorer]

    def __repr__(self) -> str:
        return f"<Scorers {'; '.join(f'{name}: {one._shown}' for name, one in self.by_name.items())}>"

    def table(self, texts: Texts, *, text_pairs: Texts | None = None, **keywords: Unpack[ScoreKeywords]) -> pa.Table:
        """Score texts into the columns of a run with these models, and `error`. See `shardsift.score` for arguments.

        >>> scorers = shardsift.load_scorer({"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})
        >>> scorers.table(["Buy now!"]).column_names
        ['edu_score', 'int_edu_score', 'tox_score', 'tox_label', 'tox_score_toxic', …, 'error']

        A row that one of the models cannot score has no scores at all.
        """
        by_column = {score_column_of(name): one for name, one in self.by_name.items()}
        scorings, scored = _scored(by_column, texts, text_pairs, keywords)
        with _argument_errors():
            check_output_columns(scorings)
        return _as_table(scorings, scored)

    score = table  # an array would not say which model each score is from


@overload
def load_scorer(model: Location = DEFAULT_MODEL, **settings: Unpack[LoadKeywords]) -> LoadedScorer: ...
@overload
def load_scorer(model: Mapping[str, Location], **settings: Unpack[LoadKeywords]) -> LoadedScorers: ...
def load_scorer(
    model: Location | Mapping[str, Location] = DEFAULT_MODEL, **settings: Unpack[LoadKeywords]
) -> LoadedScorer | LoadedScorers:
    """Load a model onto the best device of this machine, to use it more than once.

    >>> scorer = shardsift.load_scorer("HuggingFaceFW/fineweb-edu-classifier")
    >>> scorer
    <Scorer HuggingFaceFW/fineweb-edu-classifier@abc1234 bfloat16 on cpu, 1 output>
    >>> scores = scorer.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    >>> both = shardsift.load_scorer({"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})

    model: a Hub name or a folder. To score with several models in one pass, a dict by the name that each model's
        columns begin with. NAME@REVISION names a branch, tag or commit of a Hub model; default: the current main.
    scorer: the kind of scorer that loads the model. Packages can add their own: see examples/own_scorer.
    dtype: precision of the model. "auto" is 16 bits if the device is fast at it, otherwise float32.

    device, backend, max_batch_tokens, compile, threads and parity_rows change the speed, and the scores only by
    rounding. None means the setting in the environment, such as SHARDSIFT_DEVICE. docs/settings.md describes them.

    Like a worker, this also scores sample texts in float32, and refuses a model whose fast scores differ. That takes
    seconds; `parity_rows=0` skips it. Raises UsageError if the model cannot be found or loaded, if its scores differ,
    or if it does not fit in memory.
    """
    if unknown := settings.keys() - LoadKeywords.__annotations__.keys():
        raise TypeError(
            f"There is no argument {min(unknown)!r}. Those of load_scorer are: {', '.join(LoadKeywords.__annotations__)}. "
            "Options of how texts are scored go to score()."
        )
    scorer = settings.pop("scorer", SEQUENCE_CLASSIFIER)
    chosen = read_settings(**{"dtype": "auto", **settings})
    with keyword_errors(), quiet_imports():
        names = _checked_names(model)
        check_requirements([scorer_kind(scorer)])
        models = resolve_models(scorer, (with_revision(os.fspath(name)) for name in names.values()))
        try:
            scorers = list(load_scorers(models, chosen))
            sharing_scorers(scorers)  # frees duplicate encoders
        except ModelError as error:
            raise UsageError(str(error)) from error
    loaded = [LoadedScorer(model=found, scorer=one) for found, one in zip(models, scorers, strict=True)]
    if not isinstance(model, Mapping):
        return loaded[0]
    return LoadedScorers(by_name=dict(zip(names, loaded, strict=True)))


@overload
def score(
    texts: Texts,
    model: Location | LoadedScorer = DEFAULT_MODEL,
    *,
    text_pairs: Texts | None = None,
    **keywords: Unpack[LoadAndScoreKeywords],
) -> Floats: ...
@overload
def score(
    texts: Texts,
    model: Mapping[str, Location] | LoadedScorers,
    *,
    text_pairs: Texts | None = None,
    **keywords: Unpack[LoadAndScoreKeywords],
) -> pa.Table: ...
def score(
    texts: Texts,
    model: Location | Mapping[str, Location] | LoadedScorer | LoadedScorers = DEFAULT_MODEL,
    *,
    text_pairs: Texts | None = None,
    **keywords: Unpack[LoadAndScoreKeywords],
) -> Floats | pa.Table:
    """Score texts with a sequence classifier, or with several: Hub names, folders, or what `load_scorer` returned.

    >>> scores = shardsift.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    >>> frame["score"] = shardsift.score(frame["text"])
    >>> frame["rank"] = shardsift.score(frame["query"], "BAAI/bge-reranker-v2-m3", text_pairs=frame["passage"])
    >>> table = shardsift.score(frame["text"], {"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})

    Returns float32 scores in the order of the texts: shape (rows,) for a model with one output, otherwise (rows,
    labels), with the labels in the order of `load_scorer(model).labels`, or of `labels`. For several models it returns
    an Arrow table with the columns that a run writes, such as `edu_score` and `tox_label`, and `error`. A run with the
    same options publishes the same scores, up to rounding.

    texts: a list, an iterator, a numpy or Arrow array, or a pandas or polars Series. Of a table, pass one column. An
        iterator is read 8,192 texts at a time, so `tqdm(texts)` shows progress.
    model: a name or folder, which is loaded for this call, or what `load_scorer` returned, to score more than once. For
        several models, a dict by the name that each model's columns begin with. Then texts are read once, they are
        tokenized once for models with equal tokenizers, and an encoder that models share runs once.
    text_pairs: second texts, for a model that scores pairs, such as a reranker. Any type that `texts` may have.
    labels: for zero-shot classification: the labels to choose from, as a list or one text with commas. Needs a model of
        natural language inference, such as facebook/bart-large-mnli. A label's score says how far the text entails
        `hypothesis_template` with the label in it. The scores of a text add up to 1; with `multi_label=True` each label
        is judged by itself. Of several models, only those of natural language inference use the labels.
    max_tokens: how many tokens the model reads of a text, special tokens included. Default: the model's limit.
    passages: what to read of a longer text: "head", "head+tail", "head+middle+tail", or "stride:N" for all of it: a
        passage of `max_tokens` begins every N tokens, and the last one ends with the text. "finepdfs" reads as the
        FinePDFs classifiers do. Default: "head". A text's logits are the highest of its passages, or with ":mean" at
        the end, as in "stride:256:mean", the mean.
    function_to_apply: turns logits into scores. Default: softmax for a model with several labels, or sigmoid if a text
        may have several of them, as in a transformers pipeline. A single output stays a raw logit.

    As in a run, the recipe of a popular classifier sets the options that you do not give: max_tokens, passages,
    hypothesis_template and function_to_apply, and whether a table has `int_score`. docs/recipes.md lists them. A
    recipe's template over columns is not applied: pass complete texts.

    dtype, device and the other arguments: as for `load_scorer`.

    A row that cannot be scored is NaN: a missing text (None or NaN), a blank text, a text with no token, a pair that
    lacks one of its texts. `LoadedScorer.table` says why. Raises TypeError if `texts` is not a column of texts,
    ValueError if `texts` and `text_pairs` differ in length, and UsageError for a model that cannot be loaded.
    """
    check_are_columns(texts, text_pairs)  # before a model is loaded
    load_options, options = _parted(keywords)
    if not isinstance(model, (LoadedScorer, LoadedScorers)):
        model = load_scorer(model, **load_options)
    elif load_options:
        raise UsageError(f"The scorer is loaded already. Pass {', '.join(load_options)} to load_scorer.")
    return model.score(texts, text_pairs=text_pairs, **options)


def _parted(keywords: LoadAndScoreKeywords) -> tuple[LoadKeywords, ScoreKeywords]:
    given = dict(keywords)
    load_options = {name: given.pop(name) for name in LoadKeywords.__annotations__ if name in given}
    return cast(LoadKeywords, load_options), cast(ScoreKeywords, given)


def _checked_names(model: Any) -> Mapping[str, Location]:
    """Return the models by name. A single model gets the empty name.

    Raises UsageError if `model` is neither a location nor a dict, if the dict is empty, if two of its names differ only
    in case, or if a name cannot begin the name of a column.
    """
    if isinstance(model, (str, os.PathLike)):
        return {"": model}
    if not isinstance(model, Mapping):
        raise UsageError(
            "model is a name or a folder, or a dict that names several, as in {'edu': MODEL, 'tox': MODEL}."
        )
    if not model:
        raise UsageError("model is empty. Name at least one, as in {'edu': MODEL}.")
    for name in model:
        score_column_of(str(name))
    check_names_differ(model)
    return model


def _scored(
    scorers: Mapping[str, LoadedScorer],
    texts: Texts,
    text_pairs: Texts | None,
    keywords: ScoreKeywords,
) -> tuple[tuple[Scoring, ...], Iterator[tuple[Scores, ...]]]:
    """Return the scorings, and an iterator that scores the texts window by window.

    `scorers` maps the name of each score column to its scorer.
    """
    models = {column: one.model for column, one in scorers.items()}
    scorings = scorings_of(models, has_pairs=text_pairs is not None, **keywords)
    return scorings, _scored_windows(texts, text_pairs, scorings, [one.scorer for one in scorers.values()])


def scorings_of(
    models: Mapping[str, Model], *, has_pairs: bool, **keywords: Unpack[ScoreKeywords]
) -> tuple[Scoring, ...]:
    """Make a scoring for each model. `models` maps the name of each score column to its model.

    Does not apply the recipe's template, because the texts of `score` are complete. Raises TypeError for unknown
    options, and UsageError for invalid ones.
    """
    with _argument_errors():
        options = options_from(ScoreOptions, keywords, labels=split_at_commas)
        return tuple(
            scoring_of(
                models[column],
                one.options,
                text_columns=(TEXT,),
                text_pair_column=PAIR if has_pairs else None,
                score_column=column,
            )
            for column, one in completed_options(models, options, has_pairs=has_pairs).items()
        )


@contextmanager
def _argument_errors() -> Iterator[None]:
    """Make error messages name the arguments of `score` instead of options such as `--max-tokens`.

    Turns a ShardError into a UsageError.
    """
    try:
        with keyword_errors():
            yield
    except (ShardError, UsageError) as error:
        raise UsageError(with_keywords(str(error)).replace("text_pair_column", "text_pairs")) from error


def _values(scores: Scores, scoring: Scoring) -> Floats:
    """Apply the scoring's function to logits. Returns scores of shape (rows, outputs), with NaN in errored rows."""
    errored = list(scores.errors)
    values = scores.values.copy()
    values[errored] = 0  # because the softmax of NaN gives a warning
    values = apply(scoring.function_to_apply, values)
    values[errored] = np.nan
    return values


_NO_SHARD = Shard(name="texts", uri="", identity="")


def _scored_windows(
    texts: Texts, text_pairs: Texts | None, scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]
) -> Iterator[tuple[Scores, ...]]:
    with _argument_errors():
        work = WindowScoring(_NO_SHARD, scorings, scorers, Checkpoint({}, lambda first_row, content: None))
    with mapped_ahead(
        lambda window: next(work.prepared([window])), _as_rows(texts, text_pairs), "tokenizer"
    ) as prepared_windows:
        for prepared in prepared_windows:
            yield work.scores(prepared, Progress())


def _as_table(scorings: Sequence[Scoring], scored: Iterable[tuple[Scores, ...]]) -> pa.Table:
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
    for columns in aligned_windows(texts, text_pairs, WINDOW_ROWS):
        yield Window(first_row=first_row, rows=pa.table(columns, names=[TEXT, PAIR][: len(columns)]))
        first_row += len(columns[0])
