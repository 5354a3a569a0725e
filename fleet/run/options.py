"""Options of the command line that say what is scored: the text of a row, and the labels. Runs and `worker tune` have them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import UsageError
from fleet.run import choices
from fleet.run.scoring import HYPOTHESIS_TEMPLATE

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
    str | None,
    typer.Option(
        metavar="NAME,…|TEXT",
        help="Column to score; default: text. Several are joined by a blank line, without those that are blank in a row. "
        r"A value with columns in braces is a template: '{url}\n\n{text}'. \n is the end of a line; a column that is null in a "
        "row is empty.",
        rich_help_panel=PANEL,
    ),
]
TextPairColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Column with a second text, for a model that scores pairs, such as a reranker. A row without one of the "
        "two is errored. Not with --labels or --passages.",
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
Passages = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help=f"What is read of a longer text: {choices.PASSAGES}; default: head. stride:N reads all of it, a passage of "
        "--max-tokens every N tokens, of which the last begins earlier, so that it ends with the text; finepdfs reads as the "
        "FinePDFs classifiers do, and does not go with --labels. The score is the highest of the passages' logits, or with "
        ":mean at the end, like stride:256:mean, their mean.",
        rich_help_panel=PANEL,
    ),
]
Labels = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="LABEL,…|@FILE",
        help="Zero-shot: labels to choose from, with commas between them, or a file with one a line. For a model of natural "
        "language inference like facebook/bart-large-mnli; others beside it classify as usual. Each label adds a column: "
        "score_climate_change.",
        rich_help_panel=MODEL_PANEL,
    ),
]
HypothesisTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"Statement that a text is tested for; {{}} is the label. Default: {HYPOTHESIS_TEMPLATE}",
        rich_help_panel=MODEL_PANEL,
    ),
]
MultiLabel = Annotated[
    bool,
    typer.Option(
        "--multi-label",
        help="With --labels: judge each label by itself, because more than one can be true of a text.",
        rich_help_panel=MODEL_PANEL,
    ),
]


# The labels of zero-shot classification, as the user names them to a run or to `worker tune`.


def given_labels(labels: Sequence[str]) -> Sequence[str]:
    """The labels, or the lines of the file that `@FILE` names. Raises UsageError if it cannot be read."""
    files = [label[1:] for label in labels if label.startswith("@")]
    if files and len(labels) > 1:
        raise UsageError(f"--labels @{files[0]} goes with no other label. Write all labels into the file.")
    return _lines(Path(files[0])) if files else labels


def split_at_commas(labels: Sequence[str]) -> list[str]:
    """Each `--labels` may have several, with commas between them. A file's name may have commas."""
    return [label for text in labels for label in ([text] if text.startswith("@") else text.split(","))]


def _lines(file: Path) -> list[str]:
    try:
        labels = file.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--labels @{file} cannot be read: {reason}. It holds one label a line, in UTF-8.") from error
    if not any(map(str.strip, labels)):
        raise UsageError(f"There are no labels in --labels @{file}. Write one label a line.")
    return labels
