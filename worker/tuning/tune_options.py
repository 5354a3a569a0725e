"""The options of `worker tune`: what to try, and with which texts. The device comes from the settings."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardsift.fleet.errors import UsageError, require
from shardsift.fleet.run.options import (
    Columns,
    Labels,
    MaxTokens,
    Passages,
    ScoreOptions,
    TextColumn,
    TextPairColumn,
    reading_option,
    scoring_of,
)
from shardsift.fleet.run.scoring import Scoring

if TYPE_CHECKING:
    from shardsift.fleet.process.settings import Settings

NO_CHART = Path("none")


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of `worker tune`. The annotations define the command's options."""

    input_uri: Annotated[
        str | None,
        reading_option(
            "--input", metavar="URI", help="Texts to try, as for `producer run`. Default: texts that come with Python."
        ),
    ] = None
    columns: Columns = None
    text_column: TextColumn = None
    text_pair_column: TextPairColumn = None
    max_tokens: MaxTokens = None
    passages: Passages = None
    labels: Labels = ()
    rows: Annotated[
        int | None, typer.Option(min=1, help="Number of texts to try. Default: 64 on a CPU, 20,000 on a GPU.")
    ] = None
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS,…",
            help="Token budgets to try. Default: 512 to 8,192 on a CPU, 4,096 to 262,144 on a GPU.",
        ),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="Number of times to time each setting.")] = 3
    reference: Annotated[
        bool,
        typer.Option("--reference/--no-reference", help="Also time the plain pipeline. Slow."),
    ] = False
    output: Annotated[
        Path,
        typer.Option(metavar="PNG", help="File for the chart. none: draw no chart."),
    ] = Path("tuning.png")

    @property
    def chart_file(self) -> Path | None:
        return None if self.output == NO_CHART else self.output


def scoring_to_tune(settings: "Settings", options: TuneOptions) -> Scoring:
    """Make the scoring to try. Raises UsageError if the model or the options cannot be used."""
    from shardsift.fleet.scorers.sequence_classifier import resolve_classifier  # here, because it imports pyarrow

    if options.budgets is not None:
        parse_budgets(options.budgets)
    (name, revision), *others = settings.models
    if others:
        raise UsageError("`worker tune` tries one model. Name it with --model.")
    if options.input_uri is None and (options.columns or options.text_column or options.text_pair_column):
        raise UsageError("--columns, --text-column and --text-pair-column are about files. Name some with --input.")
    model = resolve_classifier(name, revision)
    scoring = scoring_of(
        model,
        ScoreOptions(labels=options.labels, max_tokens=options.max_tokens, passages=options.passages),
        text_columns=("text",),
        text_pair_column=options.text_pair_column,
    )
    if options.reference and (scoring.passages != "head" or (scoring.zero_shot and scoring.max_tokens)):
        raise UsageError(
            "The plain pipeline takes neither --passages nor --max-tokens with --labels. Leave out --reference, or these."
        )
    if options.chart_file:
        check_chart(options.chart_file)
    return scoring


def check_chart(file: Path) -> None:
    """Raise UsageError if a chart cannot be drawn here, or cannot be written to this file."""
    require(["matplotlib"], "shardsift[tune]", "The chart, which --output none leaves out,")
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise UsageError(f"Cannot write the chart to {file}. Name a file in a writable folder with --output.")


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse token budgets such as `1024,512` into numbers, smallest first. Raises UsageError unless all are above 0."""
    words = [word.strip() for word in text.split(",")]
    wrong = next((word for word in words if not (word.isascii() and word.isdigit() and int(word))), None)
    if wrong is not None:
        raise UsageError(
            f"--budgets takes token counts separated by commas, like 512,1024,2048; {wrong!r} is not a number above 0."
        )
    return tuple(sorted({int(word) for word in words}))
