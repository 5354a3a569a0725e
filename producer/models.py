"""The models of a run, as the user names them: each with a name for its columns and options of its own."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from fleet.errors import UsageError
from fleet.model import with_revision
from producer.options import RunOptions

_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
_DEFAULT = RunOptions()


def options_by_model(options: RunOptions) -> list[RunOptions]:
    """The options of each model: its name without a revision, its revision, and its score column.

    Raises UsageError if several models have no names or the same one, or if an option is for a single model.
    """
    named = [_parsed(text) for text in options.models]
    _check(options, named)
    return [_options(options, name, text) for name, text in named]


def _parsed(text: str) -> tuple[str | None, str]:
    """The name for the columns, if there is one, and the model. A folder's name may have an equals sign."""
    match = _NAMED.fullmatch(text)
    if match is None or Path(text).expanduser().is_dir():
        return None, text
    return match[1], match[2]


def _check(options: RunOptions, named: list[tuple[str | None, str]]) -> None:
    names = [name for name, _ in named]
    if not all(text for _, text in named) or not named:
        raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
    if any(names) and options.score_column != _DEFAULT.score_column:
        raise UsageError("A model's name, as in edu=MODEL, names its columns. Leave --score-column out, or the name.")
    if len(named) == 1:
        return
    if None in names:
        text = next(text for name, text in named if name is None)
        raise UsageError(f"Give each of several models a name for its columns, like --model edu={text}.")
    if twice := [name for name, count in Counter(name.lower() for name in names if name).items() if count > 1]:
        raise UsageError(f"Two models are called {twice[0]}. Give each a name of its own: it names its columns.")
    if options.model_revision:
        raise UsageError("--revision is for a single model. Name a revision of each as --model NAME=MODEL@REVISION.")


def _options(options: RunOptions, name: str | None, text: str) -> RunOptions:
    model, revision = (text, None) if options.model_revision else with_revision(text)
    return replace(
        options,
        models=(model,),
        model_revision=revision or options.model_revision,
        score_column=f"{name}_score" if name else options.score_column,
    )
