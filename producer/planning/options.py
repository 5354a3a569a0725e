"""The options that `enqueue` and `run` share: one line each, from which both commands and the Python API are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypedDict

import typer

from shardsift.fleet.process.command_line import with_options_of
from shardsift.fleet.process.keywords import Location, Names
from shardsift.fleet.run.choices import DEFAULT_MODEL, Dtype
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER
from shardsift.fleet.run.options import (
    Columns,
    ScoreKeywords,
    ScoreOptions,
    TextColumn,
    TextPairColumn,
    model_option,
    reading_option,
    split_at_commas,
)

keep_option = partial(typer.Option, rich_help_panel="What to keep")
output_option = partial(typer.Option, rich_help_panel="Where to put it")

# Those that `producer refilter` has too.
TargetFileSize = Annotated[
    str | None,
    output_option(
        metavar="SIZE",
        help="Merge shards, in order, into data files of about this size, or none. Default: 512MB on the Hub, else none; "
        "of a refilter, as before.",
    ),
]
Public = Annotated[bool, output_option("--public", help="Create the dataset on the Hub as public.")]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Which rows to keep: by what is known of each, or a share of all."""

    min_score: Annotated[
        float | None,
        keep_option(
            help="Keep rows with at least this score. Default of a new run: the threshold of the model's recipe or training."
        ),
    ] = None
    where: Annotated[
        str | None,
        keep_option(
            metavar="SQL",
            help="Filter by this SQL condition: keep rows for which it is true, like 'int_score >= 3'; 'false' publishes "
            "scores alone.",
        ),
    ] = None
    keep_all: Annotated[bool, keep_option("--keep-all", help="Keep every row that has a score.")] = False
    keep_top: Annotated[
        str | None,
        keep_option(
            metavar="SHARE",
            help="Keep the best rows, like 10%, and those that tie with the last of them. A new run publishes its scores first, "
            "to OUTPUT-scores.",
        ),
    ] = None
    buckets: Annotated[
        int | None,
        keep_option(
            min=2, max=100, metavar="N", help="Add a column bucket: N equal parts of all scored rows, 0 the lowest."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How rows are ranked by their stored scores."""

    score_columns: Annotated[
        tuple[str, ...],
        keep_option(
            "--score-column", metavar="NAME", help="Score to rank by. May be repeated: the highest of a row counts."
        ),
    ] = ()
    by: Annotated[
        str | None, keep_option(metavar="NAME", help="Weigh rows by a whole number of the input, such as token_count.")
    ] = None
    within: Annotated[
        str | None,
        keep_option(
            metavar="NAME", help="Rank rows of each value of a column, such as label or a topic, by themselves."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Choice(Ranking, Condition):
    """Which rows to keep, and for a share of them, how they are ranked."""

    @property
    def needs_all_scores(self) -> bool:
        return self.keep_top is not None or self.buckets is not None


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The input of a run. The annotations are those of the command line."""

    crawl: Annotated[
        str | None,
        reading_option(metavar="NAME", help="Common Crawl release of FineWeb, like CC-MAIN-2024-10."),
    ] = None
    input_uris: Annotated[
        tuple[str, ...],
        reading_option(
            "--input",
            metavar="URI",
            help="Your own files, instead of --crawl: a file, folder, glob or URL (hf://, s3://) of Parquet, JSON Lines or "
            "CSV. May be repeated.",
        ),
    ] = ()
    columns: Columns = None
    text_column: TextColumn = None
    text_pair_column: TextPairColumn = None
    limit_rows: Annotated[int | None, reading_option(min=1, metavar="N", help="Stop after N rows in total.")] = None
    rows_per_task: Annotated[
        int | None,
        reading_option(
            min=1,
            metavar="N",
            help="Split Parquet files, and no others, into tasks of whole row groups with up to N rows.",
        ),
    ] = None
    max_bad_rows: Annotated[
        float,
        reading_option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Fail if more than this share of the rows cannot be read. A shard may have ten in any case.",
        ),
    ] = 0.01


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of a run."""

    models: Annotated[
        tuple[str, ...],
        model_option(
            "--model",
            metavar="[NAME=]MODEL",
            help="Sequence classifier: a Hub name or folder; MODEL@REVISION names a revision. May be repeated, each with a name "
            "for its columns: edu=… adds edu_score.",
        ),
    ] = (DEFAULT_MODEL,)
    scorer: Annotated[
        str,
        model_option(metavar="KIND", help="Kind of scorer; packages may add their own."),
    ] = SEQUENCE_CLASSIFIER
    dtype: Annotated[
        Dtype,
        model_option(help="Number format. auto: 16 bits if the device is fast at them, else float32."),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class RunOptions(Choice, ScoreOptions, Models, InputOptions):
    """The options of a run."""

    output_uri: Annotated[
        str,
        output_option(
            "--output",
            metavar="URI",
            help="A folder, a URL (s3://, hf://buckets/), or hf://datasets/USER/NAME, with @BRANCH or @refs/pr/N to publish "
            "beside main. Default for --crawl: USER/fineweb-CRAWL-MODEL.",
        ),
    ] = ""
    public: Public = False
    target_file_size: TargetFileSize = None


class RankingKeywords(TypedDict, total=False):
    """`Ranking` as keyword arguments."""

    score_column: Names | None
    by: str | None
    within: str | None


class ChoiceKeywords(RankingKeywords, total=False):
    """`Choice` as keyword arguments."""

    min_score: float | None
    where: str | None
    keep_all: bool
    keep_top: str | None
    buckets: int | None


class RunKeywords(ScoreKeywords, ChoiceKeywords, total=False):
    """`RunOptions` as keyword arguments."""

    crawl: str | None
    input: Location | Sequence[Location] | None
    columns: Names | None
    text_column: Names | None
    text_pair_column: str | None
    limit_rows: int | None
    rows_per_task: int | None
    max_bad_rows: float
    model: Location | Sequence[Location] | Mapping[str, Location] | None
    scorer: str
    dtype: Dtype
    output: Location | None
    public: bool
    target_file_size: str | None


with_run_options = with_options_of(RunOptions, labels=split_at_commas)
