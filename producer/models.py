"""The models of a run, as the user names them: each with a name for its columns."""

import re
from dataclasses import replace
from pathlib import PurePosixPath

from fleet.errors import UsageError
from fleet.model import with_revision
from fleet.scoring import check_names_differ, name_and_model, score_column_of
from producer.options import RunOptions


def options_by_model(options: RunOptions) -> dict[str, RunOptions]:
    """The options of each model, by its score column.

    Raises UsageError if several models have no names or the same one.
    """
    named = [name_and_model(text) for text in options.models]
    _check(named)
    return {score_column_of(name) if name else "score": replace(options, models=(text,)) for name, text in named}


def _check(named: list[tuple[str | None, str]]) -> None:
    if not all(text for _, text in named) or not named:
        raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
    if len(named) == 1:
        return
    unnamed = next((text for name, text in named if name is None), None)
    if unnamed is not None:
        raise UsageError(
            f"Give each of several models a name for its columns, like --model {_name_for(unnamed)}={unnamed}."
        )
    check_names_differ(name for name, _ in named if name)


def _name_for(model: str) -> str:
    """A name from the last part of a model's: `toxic_bert` for unitary/toxic-bert."""
    return re.sub(r"\W+", "_", PurePosixPath(with_revision(model)[0]).name).strip("_") or "one"
