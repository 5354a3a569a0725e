"""The models of a run, as the user names them: each with a name for its columns."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from rich.table import Table

from fleet.errors import UsageError
from fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from fleet.run.options import given_labels
from fleet.run.recipes import Recipe, as_arguments, filled, quoted, recipe_for, recipe_line, recipe_of
from fleet.run.scoring import (
    HYPOTHESIS_TEMPLATE,
    ZeroShot,
    check_names_differ,
    name_and_model,
    score_column_of,
    zero_shot_of,
)
from fleet.run.spec import Shard
from fleet.run.text import columns_of, template_of
from producer.planning.options import RunOptions


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


# The labels of a zero-shot run: which models choose from them, and what does not go together.


def zero_shot(options: RunOptions, model: Model) -> ZeroShot | None:
    """What the options say about labels; None for a model that has labels of its own. Raises UsageError if they are wrong."""
    if not options.labels:
        _check_needs_no_labels(options, model)
        return None
    if options.scorer != SEQUENCE_CLASSIFIER:
        raise UsageError(f"--labels is for the scorer {SEQUENCE_CLASSIFIER}, not for {options.scorer}.")
    return zero_shot_of(
        model,
        given_labels(options.labels),
        hypothesis_template=options.hypothesis_template or HYPOTHESIS_TEMPLATE,
        multi_label=options.multi_label,
    )


def without_labels(options: RunOptions) -> RunOptions:
    """The options for a model with labels of its own, beside one that chooses from the user's."""
    return replace(options, labels=(), multi_label=False, hypothesis_template=None)


def _check_needs_no_labels(options: RunOptions, model: Model) -> None:
    given = {
        "--multi-label": options.multi_label,
        "--hypothesis-template": options.hypothesis_template is not None,
    }
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} is for --labels. Add them, or leave {wrong[0]} out.")
    if recipe_for(model, has_labels=True):
        raise UsageError(f"The model {model.name} chooses from labels that you name: add --labels.")


# Use the recipe of a model for the options that the user did not give.


def with_recipe(options: RunOptions) -> RunOptions:
    """The options of a model, with those of its recipe that the user did not give. The same if there is no recipe."""
    recipe = _recipe(options)
    return replace(options, **_filled(recipe, options)) if recipe else options


def recipe_lines(options_of_models: Iterable[RunOptions]) -> tuple[str, ...]:
    """What to tell the user about the options that `with_recipe` sets: a line for each model that has a recipe."""
    lines = []
    for options in options_of_models:
        recipe = _recipe(options)
        if recipe and (used := _filled(recipe, options)):
            lines.append(recipe_line(recipe, with_revision(options.model)[0], used))
    return tuple(lines)


def check_columns(options: RunOptions, schema: pa.Schema, shard: Shard) -> None:
    """Raises UsageError if the columns that are read of the shard lack one of the recipe's template."""
    text_column = with_recipe(options).text_column
    template = template_of(text_column) if options.text_column is None else None
    if template is None:
        return
    if missing := [name for name in columns_of(template) if name not in schema.names]:
        raise UsageError(_missing_told(missing, options, schema, shard, template))


def _missing_told(missing: list[str], options: RunOptions, schema: pa.Schema, shard: Shard, template: str) -> str:
    model, _ = with_revision(options.model)
    if options.columns is not None:
        return (
            f'The recipe of {model} reads the column "{missing[0]}", and --columns leaves it out. Add '
            f"{', '.join(missing)} to --columns, or put the text together from other columns with --text-column, like "
            f"{quoted(template)}."
        )
    return (
        f'The recipe of {model} reads the column "{missing[0]}", and shard {shard.name} has none; it has: '
        f"{', '.join(schema.names)}. Name the columns to score with --text-column, or put the text together from your "
        f"columns, like {quoted(template)}."
    )


def recipe_table(recipes: Iterable[Recipe]) -> Table:
    """Without the sources, which make it too wide for a terminal."""
    table = Table(box=None, pad_edge=False)
    for name, width in (("model", None), ("options", 50), ("checked", None), ("note", 40)):
        table.add_column(name, overflow="fold", max_width=width)
    for recipe in recipes:
        table.add_row(recipe.model, as_arguments(recipe.options), recipe.checked, recipe.note)
    return table


def _recipe(options: RunOptions) -> Recipe | None:
    """A folder has none, whatever its name is: it may hold any model."""
    if options.scorer != SEQUENCE_CLASSIFIER or Path(options.model).expanduser().is_dir():
        return None
    recipe = recipe_of(with_revision(options.model)[0])
    return recipe if recipe and recipe.zero_shot == bool(options.labels) else None


def _filled(recipe: Recipe, options: RunOptions) -> dict[str, Any]:
    return filled(recipe, vars(options))
