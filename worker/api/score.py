"""Score texts in this process: `shardsift.score` and `shardsift.load_scorer`. Knows no queue and no Redis."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeAlias, overload

import pyarrow as pa

from fleet.errors import UsageError
from fleet.process.command_line import keywords_told
from fleet.process.settings import read_settings
from fleet.run import scorers
from fleet.run.choices import DEFAULT_MODEL, Dtype
from fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from fleet.run.options import ScoreOptions
from fleet.run.scoring import check_names_differ, score_column_of
from worker.api.loaded import Floats, LoadedScorer, LoadedScorers, Texts
from worker.api.texts import check_are_pairs, check_is_one_column
from worker.models_together import loaded_beside
from worker.scoring import ModelError
from worker.scoring.quiet import quiet_imports
from worker.shard.scoring_groups import sharing_scorers

ModelName: TypeAlias = str | PathLike[str]
_SETTINGS = ("device", "backend", "max_batch_tokens", "compile", "threads", "parity_rows")


@overload
def load_scorer(model: ModelName = DEFAULT_MODEL, **options: Any) -> LoadedScorer: ...
@overload
def load_scorer(model: Mapping[str, ModelName], **options: Any) -> LoadedScorers: ...
def load_scorer(
    model: ModelName | Mapping[str, ModelName] = DEFAULT_MODEL,
    *,
    scorer: str = SEQUENCE_CLASSIFIER,
    dtype: Dtype = "auto",
    **settings: Any,
) -> LoadedScorer | LoadedScorers:
    """Load a model onto the best device of this machine, to score with it more than once.

    >>> scorer = shardsift.load_scorer("HuggingFaceFW/fineweb-edu-classifier")
    >>> scorer
    <Scorer HuggingFaceFW/fineweb-edu-classifier@abc1234 bfloat16 on cpu, 1 output>
    >>> scores = scorer.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    >>> both = shardsift.load_scorer({"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})

    model: a Hub name or a folder, or several to score with in one pass, each by the name that its columns begin with.
        NAME@REVISION names a branch, tag or commit of a Hub model; default: the current main.
    scorer: the kind of scorer that loads the model. Packages can add their own: see examples/own_scorer.
    dtype: precision of the model. "auto" is 16 bits if the device is fast at it, otherwise float32.

    device, backend, max_batch_tokens, compile, threads and parity_rows change the speed, and the scores by rounding only. If one
    is None, it is read from the environment, as a worker reads it: SHARDSIFT_DEVICE and so on. docs/settings.md describes them.

    Like a worker, this scores sample texts in float32 too and refuses a model whose fast scores differ. That takes seconds;
    `parity_rows=0` leaves it out. Raises UsageError if the model cannot be found, loaded or trusted, or does not fit beside
    the others.
    """
    if unknown := settings.keys() - set(_SETTINGS):
        raise TypeError(f"There is no argument {min(unknown)!r}. Those of load_scorer are: {', '.join(_SETTINGS)}.")
    chosen = read_settings(dtype=dtype, **settings)
    with keywords_told(), _model_errors_told(), quiet_imports():
        names = _checked_names(model)
        scorers.check_requirements([scorers.scorer_kind(scorer)])
        models = [_resolved(scorer, os.fspath(name)) for name in names.values()]
        loaded = [
            LoadedScorer(model=found, scorer=one)
            for found, one in zip(models, loaded_beside(models, chosen), strict=True)
        ]
        sharing_scorers([one.scorer for one in loaded])  # now, because it lets go of encoders that are there twice
    if not isinstance(model, Mapping):
        return loaded[0]
    return LoadedScorers(by_name=dict(zip(names, loaded, strict=True)))


@overload
def score(texts: Texts, model: ModelName | LoadedScorer = DEFAULT_MODEL, **keywords: Any) -> Floats: ...
@overload
def score(texts: Texts, model: Mapping[str, ModelName] | LoadedScorers, **keywords: Any) -> pa.Table: ...
def score(
    texts: Texts,
    model: ModelName | Mapping[str, ModelName] | LoadedScorer | LoadedScorers = DEFAULT_MODEL,
    *,
    text_pairs: Texts | None = None,
    options: ScoreOptions | None = None,
    **keywords: Any,
) -> Floats | pa.Table:
    """Score texts with a sequence classifier: a Hub name, a folder, or what `load_scorer` returned. Or with several at once.

    >>> scores = shardsift.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    >>> frame["score"] = shardsift.score(frame["text"])
    >>> frame["rank"] = shardsift.score(frame["query"], "BAAI/bge-reranker-v2-m3", text_pairs=frame["passage"])
    >>> table = shardsift.score(frame["text"], {"edu": "HuggingFaceFW/fineweb-edu-classifier", "tox": "unitary/toxic-bert"})

    Returns float32 scores in the order of the texts: shape (rows,) for a model with one output, otherwise (rows, labels), with
    the labels in the order of `load_scorer(model).labels`, or of `labels`. For several models it returns an Arrow table with
    the columns that a run with them writes, such as `edu_score` and `tox_label`, and `error`. A run with the same options
    publishes the same scores, up to rounding.

    texts: a list, an iterator, a numpy or Arrow array, or a pandas or polars Series. Of a table, pass one column. An iterator
        is read 8,192 texts at a time, so `tqdm(texts)` shows progress.
    model: loaded for this call if it is a name or a folder. To score more than once, load it once with `load_scorer`. Of
        several, a dict with the name that the columns of each begin with: the texts are read once, tokenized once for models
        that tokenize alike, and the encoder that models have in common runs once.
    text_pairs: a second text for each, for a model that scores pairs, such as a reranker; of any kind that texts can be.
    labels: zero-shot classification: choose from these labels, with a model of natural language inference such as
        facebook/bart-large-mnli. A label's score says how far the text entails `hypothesis_template` with the label in it; the
        scores of a text add up to 1, or with `multi_label=True` each label is judged by itself. Of several models, those of
        inference choose from the labels, and the others keep their own.
    max_tokens: how many tokens the model reads of a text, special ones included. Default: as many as it takes.
    passages: what is read of a longer text: "head", "head+tail", "head+middle+tail", or "stride:N" for all of it, where a passage
        of `max_tokens` begins every N tokens, and the last one earlier, so that it ends with the text; "finepdfs" reads as the
        FinePDFs classifiers do. Default: "head". The logits of a text's passages become one: the highest, or with ":mean" at
        the end, like "stride:256:mean", their mean.
    function_to_apply: turns logits into scores. The default is that of a transformers pipeline: softmax for a model with several
        labels, or sigmoid if the model says that a text can have more than one. A single output stays a raw logit.

    As in a run, the recipe of a popular classifier sets what you do not give: max_tokens, passages, hypothesis_template and
    function_to_apply, and whether a table has `int_score`. `producer recipes` lists them. A template over columns is yours to
    apply: pass texts that are put together.

    options: a `ScoreOptions`, in place of labels, max_tokens and the others.
    dtype, device and the others: as for `load_scorer`.

    A row that cannot be scored is NaN: a missing text (None or NaN), a blank text, a text without a token, a pair that lacks one
    of its texts. `LoadedScorer.table` says why. Raises TypeError for what is not a column of texts, ValueError if there are more
    texts than second texts or fewer, and UsageError for a model that cannot be loaded.
    """
    check_is_one_column(texts)  # before a model is loaded
    if text_pairs is not None:
        check_are_pairs(texts, text_pairs)
    load_options = {name: keywords.pop(name) for name in ("scorer", "dtype", *_SETTINGS) if name in keywords}
    if not isinstance(model, (LoadedScorer, LoadedScorers)):
        model = load_scorer(model, **load_options)
    elif load_options:
        raise UsageError(f"The scorer is loaded already. Pass {', '.join(load_options)} to load_scorer.")
    return model.score(texts, text_pairs=text_pairs, options=options, **keywords)


def _checked_names(model: Any) -> Mapping[str, ModelName]:
    """The models by their names. Raises UsageError for names that cannot be used; a single model needs none."""
    if isinstance(model, (str, PathLike)):
        return {"": model}
    if not isinstance(model, Mapping):
        raise UsageError(
            "model is a name or a folder, or a dict that names several, as in {'edu': MODEL, 'tox': MODEL}."
        )
    if not model:
        raise UsageError("model is empty. Name at least one, as in {'edu': MODEL}.")
    for name in model:
        score_column_of(name)
    check_names_differ(model)
    return model


def _resolved(scorer: str, name: str) -> Model:
    return scorers.resolve_model(scorer, *with_revision(name))


@contextmanager
def _model_errors_told() -> Iterator[None]:
    """Raise the scoring core's errors about a model as UsageError."""
    try:
        yield
    except ModelError as error:
        raise UsageError(str(error)) from error
