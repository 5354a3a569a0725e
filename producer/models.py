"""The models of a run, as the user names them: each with a name for its columns and options of its own."""

import re
from dataclasses import replace
from pathlib import PurePosixPath

from fleet.errors import UsageError
from fleet.model import with_revision
from fleet.scoring import check_names_differ, name_and_model, score_column_of
from producer.options import RunOptions

_DEFAULT = RunOptions()


def options_by_model(options: RunOptions) -> list[RunOptions]:
    """The options of each model: its name without a revision, its revision, and its score column.

    Raises UsageError if several models have no names or the same one, or if an option is for a single model.
    """
    named = [name_and_model(text) for text in options.models]
    _check(options, named)
    return [_options(options, name, text) for name, text in named]


def _check(options: RunOptions, named: list[tuple[str | None, str]]) -> None:
    names = [name for name, _ in named]
    if not all(text for _, text in named) or not named:
        raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
    if any(names) and options.score_column != _DEFAULT.score_column:
        raise UsageError(
            "With edu=MODEL the columns are called edu_score and so on. Leave --score-column out, or the name."
        )
    if len(named) == 1:
        return
    if None in names:
        text = next(text for name, text in named if name is None)
        raise UsageError(f"Give each of several models a name for its columns, like --model {_name_for(text)}={text}.")
    check_names_differ(filter(None, names))
    if options.model_revision:
        raise UsageError("--revision is for a single model. Name a revision of each as --model NAME=MODEL@REVISION.")


def _name_for(model: str) -> str:
    """A name from the last part of a model's: `toxic_bert` for unitary/toxic-bert."""
    return re.sub(r"\W+", "_", PurePosixPath(with_revision(model)[0]).name).strip("_") or "one"


def _options(options: RunOptions, name: str | None, text: str) -> RunOptions:
    model, revision = (text, None) if options.model_revision else with_revision(text)
    return replace(
        options,
        models=(model,),
        model_revision=revision or options.model_revision,
        score_column=score_column_of(name) if name else options.score_column,
    )
