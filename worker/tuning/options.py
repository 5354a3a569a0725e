"""The options of `worker tune`: what to try, and on which texts. The device comes from the settings, as in a worker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import UsageError
from fleet.text_options import PANEL, Columns, Labels, MaxTokens, Passages, TextColumn, TextPairColumn

NO_CHART = Path("none")


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
            help="File for the chart. Of several models, each has one, whose name ends with the model's. none: draw no chart.",
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
