"""Options of the command line that say what is scored: the text of a row, and the labels. Runs and `worker tune` have them."""

from typing import Annotated

import typer

from fleet import choices

PANEL, MODEL_PANEL = "What to read", "What to score it with"

Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:TYPE],…",
        help="Columns to read of JSON Lines and CSV files; others are left out. TYPE is string, int64, double or bool. "
        "Default: every field of the first shard's first 16 MiB, with the types found there.",
        rich_help_panel=PANEL,
    ),
]
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
        help=f"What is read of a longer text: {choices.PASSAGES}. stride:N reads all of it, a passage of --max-tokens every N "
        "tokens, of which the last begins earlier, so that it ends with the text; finepdfs reads as the FinePDFs classifiers "
        "do, and does not go with --labels.",
        rich_help_panel=PANEL,
    ),
]
Pool = Annotated[
    choices.Pool,
    typer.Option(
        help="How the passages of a text get one score: the highest logit, or the mean.", rich_help_panel=PANEL
    ),
]
Labels = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="LABEL,…",
        help="Labels of --task zero-shot, with commas between them. Each adds a column: score_climate_change.",
        rich_help_panel=MODEL_PANEL,
    ),
]
LabelsFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Labels of --task zero-shot, one a line: they may have commas.",
        rich_help_panel=MODEL_PANEL,
    ),
]
HypothesisTemplate = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Statement that a text is tested for; {} is the label.", rich_help_panel=MODEL_PANEL
    ),
]
MultiLabel = Annotated[
    bool,
    typer.Option(
        "--multi-label",
        help="Of --task zero-shot: judge each label by itself, because more than one can be true of a text.",
        rich_help_panel=MODEL_PANEL,
    ),
]
NoRecipe = Annotated[
    bool,
    typer.Option(
        "--no-recipe",
        help="Leave out the model's recipe: the options that its authors use, which `producer recipes` lists.",
        rich_help_panel=MODEL_PANEL,
    ),
]
