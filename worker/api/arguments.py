"""What to score texts with, as a Python user says it: the arguments of `shardsift.score`, without the texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TypedDict, cast

from fleet.errors import ShardError, UsageError
from fleet.process.command_line import keywords_told, with_keywords
from fleet.run.choices import Function, passages_and_pool
from fleet.run.model import Model
from fleet.run.recipes import adds_int_score, filled, recipe_for
from fleet.run.scoring import HYPOTHESIS_TEMPLATE, Scoring, check_scoring, entailment_output, zero_shot_of

TEXT, PAIR = "text", "text_pair"  # names of the columns that a user's texts become
_OF_LABELS = ("labels", "hypothesis_template", "multi_label")


class ScoreOptions(TypedDict, total=False):
    """The keyword arguments of `LoadedScorer.score` and `table`; `shardsift.score` describes them."""

    labels: Sequence[str] | None
    hypothesis_template: str | None
    multi_label: bool
    max_tokens: int | None
    passages: str | None
    function_to_apply: Function | None


def scoring_of(
    model: Model,
    score_column: str = "score",
    has_pairs: bool = False,
    *,
    labels: Sequence[str] | None = None,
    hypothesis_template: str | None = None,
    multi_label: bool = False,
    max_tokens: int | None = None,
    passages: str | None = None,
    function_to_apply: Function | None = None,
) -> Scoring:
    """The scoring of texts, or of pairs, by a model. Raises UsageError for options that do not go together."""
    zero_shot = None
    if labels is None and (multi_label or hypothesis_template is not None):
        raise UsageError("--multi-label and --hypothesis-template are for --labels. Pass labels, or leave them out.")
    if labels is not None:
        zero_shot = zero_shot_of(
            model,
            checked_labels(labels),
            hypothesis_template=hypothesis_template or HYPOTHESIS_TEMPLATE,
            multi_label=multi_label,
        )
    function = function_to_apply or (zero_shot.function if zero_shot else model.function)
    read, pool = passages_and_pool(passages or "head")
    scoring = Scoring(
        model=model,
        dtype="auto",
        text_columns=(TEXT,),
        text_pair_column=PAIR if has_pairs else None,
        score_column=score_column,
        function_to_apply=function,
        int_score=zero_shot is None and adds_int_score(model, function),
        max_tokens=max_tokens,
        passages=read,
        pool=pool,
        zero_shot=zero_shot,
    )
    check_scoring(scoring)
    return scoring


def scorings_of(models: Mapping[str, Model], options: ScoreOptions, *, has_pairs: bool) -> tuple[Scoring, ...]:
    """The scoring of each model, by its score column. Raises TypeError for unknown options, UsageError for wrong ones.

    As in a run, models that can choose from labels do, and others beside them keep their own.
    """
    if unknown := options.keys() - ScoreOptions.__annotations__.keys():
        known = ", ".join(ScoreOptions.__annotations__)
        raise TypeError(f"There is no argument {min(unknown)!r}. Those of score and table are: {known}.")
    if options.get("labels") is not None:
        options = {**options, "labels": checked_labels(options["labels"] or ())}  # an iterator is read once
    choosing = [column for column, model in models.items() if entailment_output(model) is not None]
    with arguments_told():
        return tuple(
            scoring_of(model, column, has_pairs, **with_recipe(model, own, has_pairs=has_pairs))
            for column, model in models.items()
            for own in (_without_labels(options) if choosing and column not in choosing else options,)
        )


def with_recipe(model: Model, options: ScoreOptions, *, has_pairs: bool = False) -> ScoreOptions:
    """The options, with those of the model's recipe that were not given, as producer/planning/models.py does for a run.

    The recipe's template is the user's to apply, because here a text is put together already.
    """
    recipe = recipe_for(model, has_labels=options.get("labels") is not None)
    if recipe is None:
        return options
    chosen = dict.fromkeys(ScoreOptions.__annotations__) | options | {"text_pair_column": PAIR if has_pairs else None}
    return cast("ScoreOptions", {**options, **filled(recipe, chosen)})


def checked_labels(labels: Sequence[str]) -> Sequence[str]:
    if isinstance(labels, str):
        raise TypeError(f"Expected a list of labels, not a single str. Pass [{labels!r}].")
    if isinstance(labels, (Set, Mapping)) or not isinstance(labels, Iterable):
        raise TypeError(f"Expected a list of labels, whose order is that of the scores, not {type(labels).__name__}.")
    return tuple(labels)


@contextmanager
def arguments_told() -> Iterator[None]:
    """Name options in errors as the arguments of `score`. What would be a shard's error in a run is the user's here."""
    try:
        with keywords_told():
            yield
    except (ShardError, UsageError) as error:
        raise UsageError(with_keywords(str(error)).replace("text_pair_column", "text_pairs")) from error


def _without_labels(options: ScoreOptions) -> ScoreOptions:
    return cast("ScoreOptions", {name: value for name, value in options.items() if name not in _OF_LABELS})
