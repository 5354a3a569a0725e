"""Find the scorings of a run: each model at a fixed revision, with its recipe and the text that it reads."""

from dataclasses import dataclass

from shardsift.fleet.run.options import completed_options, scoring_of
from shardsift.fleet.run.recipes import recipe_line
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.text import template_of, text_columns
from shardsift.fleet.scorers.kinds import resolve_model
from shardsift.fleet.scorers.sequence_classifier import check_max_tokens
from shardsift.producer.planning.columns import FoundColumns
from shardsift.producer.planning.options import RunOptions


@dataclass(frozen=True, kw_only=True)
class FoundScorings:
    """The scorings and options of a run. If there is a single model, the options include those of its recipe."""

    scorings: tuple[Scoring, ...]
    options: RunOptions
    notes: tuple[str, ...]  # the recipes that are used


def find_scorings(options: RunOptions, found: FoundColumns) -> FoundScorings:
    """Look up the models. Raises UsageError if one is missing, or does not fit the options or the columns."""
    models = {column: resolve_model(options.scorer, *named) for column, named in options.by_column.items()}
    completed = completed_options(models, options)
    for column, one in completed.items():
        check_max_tokens(models[column], one.options.max_tokens)
    first = found.source.shards[0]
    scorings = tuple(
        scoring_of(
            models[column],
            one.options,
            text_columns=text_columns(one.options, found.schema, first.uri, called=f"Shard {first.name}"),
            text_pair_column=options.text_pair_column,
            text_template=template_of(one.options.text_column),
            score_column=column,
            dtype=options.dtype,
        )
        for column, one in completed.items()
    )
    (only,) = completed.values() if len(completed) == 1 else (None,)
    return FoundScorings(
        scorings=scorings,
        options=only.options if only else options,
        notes=tuple(
            recipe_line(models[column].name, one.by_recipe) for column, one in completed.items() if one.by_recipe
        ),
    )
