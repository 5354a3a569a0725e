"""Options of the command line that say which text of a row a model reads, and how. Runs and `worker tune` have them."""

from typing import Annotated

import typer

from fleet.choices import PASSAGES

PANEL, MODEL_PANEL = "What to read", "What to score it with"

TextColumn = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Column to score. Several are joined by a blank line, without those that are blank in a row.",
        rich_help_panel=PANEL,
    ),
]
TextTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=r"Text to score, with columns in braces, instead of --text-column: '{url}\n\n{text}'. "
        r"\n is the end of a line; a column that is null in a row is empty.",
        rich_help_panel=PANEL,
    ),
]
TextPairColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Column with a second text, for a model that scores pairs, such as a reranker. A row without one of the "
        "two is errored. Not with --labels or --windows.",
        rich_help_panel=PANEL,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Tokens that the model reads at once, special tokens included. Default: as many as it takes.",
        rich_help_panel=PANEL,
    ),
]
Windows = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help=f"What is read of a longer text: {PASSAGES}. stride:N reads all of it, a passage of --max-tokens every N "
        "tokens; finepdfs reads as the FinePDFs classifiers do, and does not go with --labels.",
        rich_help_panel=PANEL,
    ),
]
HypothesisTemplate = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Statement that a text is tested for; {} is the label.", rich_help_panel=MODEL_PANEL
    ),
]
