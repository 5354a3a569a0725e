"""The options of scoring a text, and how to make a Scoring from these options and a model.

Shared by runs, `shardsift.score` and `worker tune`. The annotations define the options of the commands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Generic, TypedDict, TypeVar

import typer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import local_path
from shardsift.fleet.run import choices
from shardsift.fleet.run.choices import Dtype, Function
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model
from shardsift.fleet.run.recipes import adds_int_score, filled, recipe_for
from shardsift.fleet.run.scoring import (
    HYPOTHESIS_TEMPLATE,
    Scoring,
    ZeroShot,
    check_scoring,
    entailment_output,
    zero_shot_of,
)

reading_option = partial(typer.Option, rich_help_panel="What to read")
model_option = partial(typer.Option, rich_help_panel="What to score it with")

Columns = Annotated[
    str | None,
    reading_option(
        metavar="NAME[:TYPE],…",
        help="Columns to read of JSON Lines and CSV files. TYPE is string, int64, double, bool or json, which keeps any value "
        "as text. Default: the fields and types of a sample of all files. For files of any format, a name may also be that of "
        "a folder like year=2024, whose values are text.",
    ),
]
TextColumn = Annotated[
    str | None,
    reading_option(
        metavar="NAME,…|TEXT",
        help="Column to score, or several, joined by a blank line, or a template with columns in braces: "
        r"'{url}\n\n{text}'. Default: text.",
    ),
]
TextPairColumn = Annotated[
    str | None,
    reading_option(
        metavar="NAME", help="Column with a second text, for a model that scores pairs, such as a reranker."
    ),
]
MaxTokens = Annotated[
    int | None,
    reading_option(
        min=1,
        metavar="N",
        help="Tokens that the model reads at once, with special tokens. Default: as many as it takes.",
    ),
]
Passages = Annotated[
    str | None,
    reading_option(
        metavar="KIND",
        help=f"Passages to read of a longer text: {choices.PASSAGES}; default: head. stride:N reads all of it, a passage every "
        "N tokens. The highest logit counts, or with :mean, like stride:256:mean, their mean.",
    ),
]
Labels = Annotated[
    tuple[str, ...],
    model_option(
        metavar="LABEL,…|@FILE",
        help="Zero-shot: labels to choose from, or a file with one label per line. For a model of natural language inference "
        "like facebook/bart-large-mnli.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of scoring a text. A field has its default if the user did not give the option."""

    max_tokens: MaxTokens = None
    passages: Passages = None
    labels: Labels = ()
    hypothesis_template: Annotated[
        str | None,
        model_option(
            metavar="TEXT", help=f"Statement to test a text for; {{}} is the label. Default: {HYPOTHESIS_TEMPLATE}"
        ),
    ] = None
    multi_label: Annotated[
        bool,
        model_option("--multi-label", help="With --labels: judge each label by itself; a text can have several."),
    ] = False
    function_to_apply: Annotated[
        Function | None,
        model_option(
            help="Function applied to the logits. Default: none for one output; for several labels, the one that the model's "
            "config asks for."
        ),
    ] = None


class ScoreKeywords(TypedDict, total=False):
    max_tokens: int | None
    passages: str | None
    labels: Iterable[str] | None
    hypothesis_template: str | None
    multi_label: bool
    function_to_apply: Function | None


Options = TypeVar("Options", bound=ScoreOptions)


@dataclass(frozen=True, kw_only=True)
class Completed(Generic[Options]):
    """The options of one model of a run. `by_recipe` has the name and value of each option from the model's recipe."""

    options: Options
    by_recipe: dict[str, Any]


def completed_options(
    models: Mapping[str, Model], options: Options, *, has_pairs: bool = False
) -> dict[str, Completed[Options]]:
    """Complete each model's options with those of its recipe. Returns them by the keys of `models`.

    If some models are zero-shot, only they get the options about labels. If `has_pairs`, pairs of texts are scored, and
    a recipe's `passages` are not used.
    """
    choosing = [key for key, model in models.items() if entailment_output(model) is not None]
    without_labels = replace(options, labels=(), multi_label=False, hypothesis_template=None)
    found = {}
    for key, model in models.items():
        given = without_labels if choosing and key not in choosing else options
        recipe = recipe_options(model, given, has_pairs=has_pairs)
        found[key] = Completed(options=replace(given, **recipe), by_recipe=recipe)
    return found


def recipe_options(model: Model, options: ScoreOptions, *, has_pairs: bool = False) -> dict[str, Any]:
    """Return the options in the model's recipe that the user did not give, by name. Empty without a recipe.

    Leaves out those that contradict the user's options. If `has_pairs`, pairs of texts are scored, which contradicts a
    recipe's `passages`.
    """
    recipe = recipe_for(model, has_labels=bool(options.labels))
    pair = {"text_pair_column": ""} if has_pairs else {}
    return filled(recipe, vars(options) | pair) if recipe else {}


def scoring_of(
    model: Model,
    options: ScoreOptions,
    *,
    text_columns: tuple[str, ...],
    text_pair_column: str | None = None,
    text_template: str | None = None,
    score_column: str = "score",
    dtype: Dtype = "auto",
) -> Scoring:
    """Make a scoring. Raises UsageError for options that contradict each other or do not fit the model."""
    zero_shot = _zero_shot(model, options)
    function = options.function_to_apply or (zero_shot.function if zero_shot else model.function)
    passages, pool = choices.passages_and_pool(options.passages or "head")
    scoring = Scoring(
        model=model,
        dtype=dtype,
        text_columns=text_columns,
        text_pair_column=text_pair_column,
        text_template=text_template,
        max_tokens=options.max_tokens,
        passages=passages,
        pool=pool,
        score_column=score_column,
        function_to_apply=function,
        int_score=zero_shot is None and adds_int_score(model, function),
        zero_shot=zero_shot,
    )
    check_scoring(scoring)
    return scoring


def _zero_shot(model: Model, options: ScoreOptions) -> ZeroShot | None:
    if not options.labels:
        _check_needs_no_labels(model, options)
        return None
    if model.scorer != SEQUENCE_CLASSIFIER:
        raise UsageError(f"--labels is for the scorer {SEQUENCE_CLASSIFIER}, not for {model.scorer}.")
    return zero_shot_of(
        model,
        _given_labels(options.labels),
        hypothesis_template=options.hypothesis_template or HYPOTHESIS_TEMPLATE,
        multi_label=options.multi_label,
    )


def _check_needs_no_labels(model: Model, options: ScoreOptions) -> None:
    if options.multi_label or options.hypothesis_template is not None:
        wrong = "--multi-label" if options.multi_label else "--hypothesis-template"
        raise UsageError(f"{wrong} is for --labels. Add them, or leave {wrong} out.")
    if recipe_for(model, has_labels=True):
        raise UsageError(f"The model {model.name} chooses from labels that you name: add --labels.")


def _given_labels(labels: Sequence[str]) -> Sequence[str]:
    files = [label[1:] for label in labels if label.startswith("@")]
    if files and len(labels) > 1:
        raise UsageError(f"--labels @{files[0]} goes with no other label. Write all labels into the file.")
    return _lines(files[0]) if files else labels


def split_at_commas(labels: Sequence[str]) -> list[str]:
    """Split each `--labels` at commas, except `@FILE`, because a file's name may have commas."""
    return [label for text in labels for label in ([text] if text.startswith("@") else text.split(","))]


def _lines(file: str) -> list[str]:
    try:
        labels = local_path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--labels @{file} cannot be read: {reason}. It holds one label a line, in UTF-8.") from error
    if not any(map(str.strip, labels)):
        raise UsageError(f"There are no labels in --labels @{file}. Write one label a line.")
    return labels
