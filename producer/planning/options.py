"""The options that `enqueue` and `run` share: one line each, from which both commands and `RunOptions` are made."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fleet.process.command_line import with_options_of
from fleet.run.choices import DEFAULT_DATASET, DEFAULT_MODEL, Dtype, Function
from fleet.run.model import SEQUENCE_CLASSIFIER
from fleet.run.options import (
    MODEL_PANEL,
    PANEL,
    Columns,
    HypothesisTemplate,
    Labels,
    MaxTokens,
    MultiLabel,
    Passages,
    TextColumn,
    TextPairColumn,
    split_at_commas,
)

_INPUT, _MODEL, _KEEP, _OUTPUT = PANEL, MODEL_PANEL, "What to keep", "Where to put it"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user may choose about a run. The annotations are those of the command line."""

    crawl: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Common Crawl release, like CC-MAIN-2024-10.", rich_help_panel=_INPUT),
    ] = None
    dataset: Annotated[
        str, typer.Option(metavar="REPO", help="Dataset that has files data/<crawl>/*.parquet.", rich_help_panel=_INPUT)
    ] = DEFAULT_DATASET
    input_uris: Annotated[
        tuple[str, ...],
        typer.Option(
            "--input",
            metavar="URI",
            help="Your own files, instead of --crawl: Parquet, JSON Lines (.jsonl, .json) or CSV, the last two also .gz or .zst. "
            "A file, folder, glob or URL (hf://, s3://). May be given more than once.",
            rich_help_panel=_INPUT,
        ),
    ] = ()
    columns: Columns = None
    text_column: TextColumn = None
    text_pair_column: TextPairColumn = None
    max_tokens: MaxTokens = None
    passages: Passages = None
    limit_rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N rows in total.", rich_help_panel=_INPUT)
    ] = None
    max_bad_rows: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Fail a shard if more than this share of its rows cannot be read; fewer are errored rows.",
            rich_help_panel=_INPUT,
        ),
    ] = 0.01
    models: Annotated[
        tuple[str, ...],
        typer.Option(
            "--model",
            metavar="[NAME=]MODEL",
            help="Sequence classifier: a Hub name or a folder. May be given more than once, each with a name for its columns: "
            "edu=… adds edu_score. With several labels, that is the score of the best one, and edu_score_<LABEL> that of each. "
            "MODEL@REVISION names a revision.",
            rich_help_panel=_MODEL,
        ),
    ] = (DEFAULT_MODEL,)
    scorer: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Kind of scorer that loads the model; packages may add their own.",
            rich_help_panel=_MODEL,
        ),
    ] = SEQUENCE_CLASSIFIER
    labels: Labels = ()
    hypothesis_template: HypothesisTemplate = None
    multi_label: MultiLabel = False
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="Precision of the model. auto: 16-bit if the device is fast at it, else float32.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto"
    function_to_apply: Annotated[
        Function | None,
        typer.Option(
            help="Function applied to the logits. Default: for several labels softmax, or sigmoid if the model says that a text "
            "can have more than one; none for a single output.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    min_score: Annotated[
        float | None,
        typer.Option(
            help="Threshold: keep rows with at least this score. Default: that of the model's recipe, or of a model "
            "that `worker train` made.",
            rich_help_panel=_KEEP,
        ),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Filter: keep rows for which this SQL condition is true, like 'int_score >= 3'.",
            rich_help_panel=_KEEP,
        ),
    ] = None
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Keep every row that has a score.", rich_help_panel=_KEEP)
    ] = False
    output_uri: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="URI",
            help="A folder, a URL, or hf://datasets/<user>/<name>. "
            "Default for --crawl: a dataset of the HF_TOKEN's user, <dataset>-<crawl>-<model>.",
            rich_help_panel=_OUTPUT,
        ),
    ] = ""
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Create the dataset on the Hub as public. Default: private.", rich_help_panel=_OUTPUT
        ),
    ] = False
    row_columns: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Names of the added columns that say which shard and row of the input a kept row is from; none: no columns.",
            rich_help_panel=_OUTPUT,
        ),
    ] = "shard,row"

    @property
    def model(self) -> str:
        """The model, of options for a single one; see `producer/planning/models.py`."""
        (model,) = self.models
        return model


with_run_options = with_options_of(RunOptions, labels=split_at_commas)
