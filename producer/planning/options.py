"""The options that `enqueue` and `run` share: one line each, from which both commands and the Python API are made."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fleet.process.command_line import with_options_of
from fleet.run.choices import DEFAULT_MODEL, Dtype
from fleet.run.model import SEQUENCE_CLASSIFIER
from fleet.run.options import (
    MODEL_PANEL,
    PANEL,
    Columns,
    ScoreOptions,
    TextColumn,
    TextPairColumn,
    split_at_commas,
)

KEEP, _OUTPUT = "What to keep", "Where to put it"

# Those that `producer refilter` has too.
Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Filter by this SQL condition: keep rows for which it is true, like 'int_score >= 3'.",
        rich_help_panel=KEEP,
    ),
]
KeepAll = Annotated[bool, typer.Option("--keep-all", help="Keep every row that has a score.", rich_help_panel=KEEP)]
Public = Annotated[
    bool, typer.Option("--public", help="Create the dataset on the Hub as public.", rich_help_panel=_OUTPUT)
]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The input of a run. The annotations are those of the command line."""

    crawl: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Common Crawl release of FineWeb, like CC-MAIN-2024-10.", rich_help_panel=PANEL
        ),
    ] = None
    input_uris: Annotated[
        tuple[str, ...],
        typer.Option(
            "--input",
            metavar="URI",
            help="Your own files, instead of --crawl: a file, folder, glob or URL (hf://, s3://) of Parquet, JSON Lines or "
            "CSV. May be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = ()
    columns: Columns = None
    text_column: TextColumn = None
    text_pair_column: TextPairColumn = None
    limit_rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N rows in total.", rich_help_panel=PANEL)
    ] = None
    max_bad_rows: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Fail a shard if more than this share of its rows cannot be read.",
            rich_help_panel=PANEL,
        ),
    ] = 0.01


@dataclass(frozen=True, kw_only=True)
class RunOptions(ScoreOptions, Reading):
    """The options of a run."""

    models: Annotated[
        tuple[str, ...],
        typer.Option(
            "--model",
            metavar="[NAME=]MODEL",
            help="Sequence classifier: a Hub name or folder; MODEL@REVISION names a revision. May be repeated, each with a name "
            "for its columns: edu=… adds edu_score.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = (DEFAULT_MODEL,)
    scorer: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Kind of scorer; packages may add their own.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = SEQUENCE_CLASSIFIER
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="Number format. auto: 16 bits if the device is fast at them, else float32.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = "auto"
    min_score: Annotated[
        float | None,
        typer.Option(
            help="Keep rows with at least this score. Default: the threshold of the model's recipe or training.",
            rich_help_panel=KEEP,
        ),
    ] = None
    where: Where = None
    keep_all: KeepAll = False
    output_uri: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="URI",
            help="A folder, a URL, or hf://datasets/USER/NAME. Default for --crawl: USER/fineweb-CRAWL-MODEL.",
            rich_help_panel=_OUTPUT,
        ),
    ] = ""
    public: Public = False
    row_columns: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Names of the two columns that say where a kept row is from; none: no columns.",
            rich_help_panel=_OUTPUT,
        ),
    ] = "shard,row"


with_run_options = with_options_of(RunOptions, labels=split_at_commas)
