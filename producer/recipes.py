"""Use the recipe of a model for the options that the user did not give."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table

from fleet.errors import UsageError
from fleet.given_text import template_of
from fleet.model import SEQUENCE_CLASSIFIER, with_revision
from fleet.recipes import Recipe, as_arguments, filled, quoted, recipe_line, recipe_of
from fleet.shard import Shard
from fleet.text_template import columns_of
from producer.options import RunOptions


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
