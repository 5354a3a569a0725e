"""The options of `worker tune`: what to try, and on which texts. The device comes from the settings, as in a worker."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.run.model import Model
from fleet.run.options import (
    PANEL,
    Columns,
    Labels,
    MaxTokens,
    Passages,
    ScoreOptions,
    TextColumn,
    TextPairColumn,
    given_labels,
    scoring_of,
)
from fleet.run.recipes import filled, recipe_for, recipe_line
from fleet.run.scoring import Scoring
from fleet.run.sequence_classifier import resolve_classifier

NO_CHART = Path("none")
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What a user may choose about a trial. The annotations are those of the command line."""

    input_uri: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="URI",
            help="File, folder or glob with texts to try, as for `producer run`. Default: texts that come with Python.",
            rich_help_panel=PANEL,
        ),
    ] = None
    columns: Columns = None
    text_column: TextColumn = None
    text_pair_column: TextPairColumn = None
    max_tokens: MaxTokens = None
    passages: Passages = None
    labels: Labels = ()
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many texts to try. Default: 64 on a CPU, 20,000 on a GPU.")
    ] = None
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS,…",
            help="Budgets to try. Default: 512 to 8,192 on a CPU, 8,192 to 262,144 on a GPU, each twice the one before.",
        ),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="How often to time each setting. The median counts.")] = 3
    reference: Annotated[
        bool,
        typer.Option(
            "--reference/--no-reference", help="Also time the plain pipeline, at 5 to 768 rows per batch. Slow."
        ),
    ] = False
    output: Annotated[
        Path,
        typer.Option(
            metavar="PNG",
            help="File for the chart. none: draw no chart.",
        ),
    ] = Path("tuning.png")

    @property
    def chart_file(self) -> Path | None:
        """None if none is drawn."""
        return None if self.output == NO_CHART else self.output


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse `512,1024` into numbers, smallest first. Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    wrong = next((word for word in words if not (word.isascii() and word.isdigit() and int(word))), None)
    if wrong is not None:
        raise UsageError(
            f"--budgets takes token counts separated by commas, like 512,1024,2048; {wrong!r} is not a number above 0."
        )
    return tuple(sorted({int(word) for word in words}))


@dataclass(frozen=True, kw_only=True)
class TunePlan:
    """The model, and how it is tried. The options have those of its recipe."""

    model: Model
    options: TuneOptions
    scoring: Scoring
    budgets: tuple[int, ...] | None  # None: depends on the device

    @property
    def labels(self) -> int:
        """How many labels the user named for the model to choose from, or 0."""
        return self.scoring.outputs if self.scoring.zero_shot else 0


def planned(settings: Settings, options: TuneOptions, say: Say) -> TunePlan:
    """Check the model of the settings and the options. Raises UsageError if they cannot be used."""
    budgets = parse_budgets(options.budgets) if options.budgets is not None else None
    options = replace(options, labels=tuple(given_labels(options.labels)))
    (name, revision), *others = settings.models
    if others:
        raise UsageError("`worker tune` tries one model. Name it with --model.")
    model = resolve_classifier(name, revision)
    options = with_recipe(model, options, say)
    scoring = scoring_of(
        model,
        ScoreOptions(labels=options.labels, max_tokens=options.max_tokens, passages=options.passages),
        text_columns=("text",),
        text_pair_column=options.text_pair_column,
    )
    if options.reference:
        _check_reference(scoring)
    if options.chart_file:
        check_chart(options.chart_file)
    return TunePlan(model=model, options=options, scoring=scoring, budgets=budgets)


def with_recipe(model: Model, options: TuneOptions, say: Say) -> TuneOptions:
    """The options, with those of the model's recipe that were not given. The texts of no input have no columns."""
    recipe = recipe_for(model, has_labels=bool(options.labels))
    left_out = () if options.input_uri is not None else ("text_column",)
    chosen = {name: value for name, value in vars(options).items() if name not in left_out}
    if recipe is None or not (used := filled(recipe, chosen)):
        return options
    say(recipe_line(model.name, used))
    return replace(options, **used)


def _check_reference(scoring: Scoring) -> None:
    """Raises UsageError if the pipeline cannot read texts as the scoring does."""
    if scoring.passages != "head":
        raise UsageError(
            f"The plain pipeline does not read --passages {scoring.passages}. Leave out --reference, or say --passages head."
        )
    if scoring.zero_shot and scoring.max_tokens:
        raise UsageError(
            "The plain pipeline takes no --max-tokens with --labels. Leave out --reference, or one of them."
        )


def check_chart(file: Path) -> None:
    """Check before the sweep that the chart can be drawn and written. Raises UsageError."""
    if not importlib.util.find_spec("matplotlib"):
        raise UsageError(
            "Drawing the chart needs matplotlib. Install it with: pip install 'shardsift[tune]', or pass --output none."
        )
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise UsageError(f"Cannot write the chart to {file}. Name a file in a writable folder with --output.")
