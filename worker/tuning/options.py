"""The options of `worker tune`: what to try, and on which texts. The device comes from the settings, as in a worker."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from fleet import choices
from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.errors import UsageError
from fleet.given_labels import given_labels
from fleet.text_options import (
    MODEL_PANEL,
    PANEL,
    Columns,
    HypothesisTemplate,
    Labels,
    LabelsFile,
    MaxTokens,
    MultiLabel,
    NoRecipe,
    Pool,
    TextColumn,
    TextPairColumn,
    TextTemplate,
    Windows,
)
from fleet.zero_shot import HYPOTHESIS_TEMPLATE


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
    text_column: TextColumn = DEFAULT_TEXT_COLUMN
    text_template: TextTemplate = None
    text_pair_column: TextPairColumn = None
    max_tokens: MaxTokens = None
    windows: Windows = "head"
    pool: Pool = "max"
    task: Annotated[
        choices.Task | None,
        typer.Option(
            help="As of a run. Default: zero-shot with --labels or --labels-file, otherwise classification.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None
    labels: Labels = ()
    labels_file: LabelsFile = None
    hypothesis_template: HypothesisTemplate = HYPOTHESIS_TEMPLATE
    multi_label: MultiLabel = False
    no_recipe: NoRecipe = False
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
    chart: Annotated[bool, typer.Option("--chart/--no-chart", help="Draw a chart with matplotlib.")] = True
    output: Annotated[
        Path,
        typer.Option(
            metavar="PNG", help="File for the chart. Of several models, each has one, whose name ends with the model's."
        ),
    ] = Path("tuning.png")

    @property
    def chart_file(self) -> Path | None:
        """None if none is drawn."""
        return self.output if self.chart else None


def with_labels(options: TuneOptions) -> TuneOptions:
    """The options with the labels of `--labels-file` in `labels`. Raises UsageError as a run does."""
    has_labels = bool(options.labels or options.labels_file)
    if options.task == "classification" and has_labels:
        raise UsageError("--labels and --labels-file are for --task zero-shot. Leave out --task, or the labels.")
    if options.task != "zero-shot" and not has_labels:
        return options
    return replace(options, labels=tuple(given_labels(options.labels, options.labels_file)), labels_file=None)


def without_labels(options: TuneOptions) -> TuneOptions:
    """The options for a model with labels of its own, beside one that chooses from the user's."""
    return replace(options, task=None, labels=(), hypothesis_template=HYPOTHESIS_TEMPLATE, multi_label=False)


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse `512,1024` into numbers, smallest first. Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    wrong = next((word for word in words if not (word.isascii() and word.isdigit() and int(word))), None)
    if wrong is not None:
        raise UsageError(
            f"--budgets takes token counts separated by commas, like 512,1024,2048; {wrong!r} is not a number above 0."
        )
    return tuple(sorted({int(word) for word in words}))
