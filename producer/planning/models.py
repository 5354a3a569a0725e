"""The models of a run as the user names them, and what their recipes say."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from rich.table import Table

from fleet.errors import UsageError
from fleet.run.model import Model, with_revision
from fleet.run.recipes import Recipe, as_arguments, quoted
from fleet.run.scoring import check_names_differ, name_and_model, score_column_of
from fleet.run.spec import Shard
from fleet.run.text import columns_of, template_of
from producer.planning.options import RunOptions


def models_by_column(models: Sequence[str]) -> dict[str, str]:
    """Each model, MODEL or MODEL@REVISION, by its score column.

    Raises UsageError if several models have no names or the same one.
    """
    named = [name_and_model(text) for text in models]
    if not all(model for _, model in named) or not named:
        raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
    if len(named) > 1:
        _check_names(named)
    return {score_column_of(name) if name else "score": model for name, model in named}


def _check_names(named: list[tuple[str | None, str]]) -> None:
    unnamed = next((model for name, model in named if name is None), None)
    if unnamed is not None:
        raise UsageError(
            f"Give each of several models a name for its columns, like --model {_name_for(unnamed)}={unnamed}."
        )
    check_names_differ(name for name, _ in named if name)


def _name_for(model: str) -> str:
    """A name from the last part of a model's: `toxic_bert` for unitary/toxic-bert."""
    return re.sub(r"\W+", "_", PurePosixPath(with_revision(model)[0]).name).strip("_") or "one"


def check_recipe_columns(
    model: Model, used: Mapping[str, Any], options: RunOptions, schema: pa.Schema, shard: Shard
) -> None:
    """Raises UsageError if the columns that are read of the shard lack one of the recipe's template.

    `used` are the recipe's options that apply.
    """
    template = template_of(used.get("text_column"))
    missing = [name for name in columns_of(template) if name not in schema.names] if template is not None else []
    if template is None or not missing:
        return
    if options.columns is not None:
        raise UsageError(
            f'The recipe of {model.name} reads the column "{missing[0]}", and --columns leaves it out. Add '
            f"{', '.join(missing)} to --columns, or put the text together from other columns with --text-column, like "
            f"{quoted(template)}."
        )
    raise UsageError(
        f'The recipe of {model.name} reads the column "{missing[0]}", and shard {shard.name} has none; it has: '
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
