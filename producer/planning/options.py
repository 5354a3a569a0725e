"""The options of `enqueue`, `run` and `refilter`. The commands and the Python API are generated from these classes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, TypedDict

import typer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import Location, Names, with_options_of
from shardsift.fleet.run.choices import DEFAULT_MODEL, Dtype
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, with_revision
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
from shardsift.fleet.run.scoring import check_names_differ, name_and_model, score_column_of

keep_option = partial(typer.Option, rich_help_panel="What to keep")
_SUBSET = re.compile(r"[A-Za-z0-9](?:[\w.-]*\w)?", re.ASCII)  # safe in paths, in globs, and for `datasets`
_OWN_SUBSETS = {"default", "scores"}
output_option = partial(typer.Option, rich_help_panel="Where to put it")

TargetFileSize = Annotated[
    str | None,
    output_option(
        metavar="SIZE",
        help="Merge shards, in order, into data files of about this size. none: do not merge. Default: 512MB on the Hub, else "
        "none; for a refilter, the size of the published run.",
    ),
]
Public = Annotated[bool, output_option("--public", help="Create the dataset on the Hub as public.")]
Extend = Annotated[
    bool,
    output_option(
        "--extend",
        help="Add to the dataset that is published there what it does not have. The other options are those that made it.",
    ),
]
EvidenceFile = Annotated[
    str | None,
    output_option(
        "--evidence",
        metavar="FILE",
        help="What `producer evaluate --output` wrote: the card says how good the filter is.",
    ),
]


Changed = Literal["refuse", "score"]


@dataclass(frozen=True, kw_only=True)
class Condition:
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
    drop_lists: Annotated[
        tuple[str, ...],
        keep_option(
            "--drop-list",
            metavar="FILE[:COLUMN]=COLUMN",
            help="Keep no row whose value in a column of the input is in FILE: a text file with one value a line, or, with "
            ":COLUMN, a column of a Parquet, JSON Lines or CSV file. The host of a URL is looked up too: example.com means its "
            "subdomains, any scheme and any port. May be repeated. none, for a refilter: no list.",
        ),
    ] = ()
    unique: Annotated[
        bool,
        keep_option(
            "--unique",
            help="Of kept rows with the same text, keep only the first, by shard name and row. Adds a digest of each text to the "
            "scores.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if sum([self.min_score is not None, self.where is not None, self.keep_all]) > 1:
            raise UsageError("Use only one of --min-score, --where and --keep-all.")
        if self.where is not None and not self.where.strip():
            raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")


def share_of(text: str) -> Fraction:
    """Parse a percentage like `10%`. Raises UsageError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if not found or not 0 < Fraction(found[1]) < 100:
        raise UsageError(f"--keep-top takes a percentage between 0% and 100%, like 10%, not {text!r}.")
    return Fraction(found[1]) / 100


@dataclass(frozen=True, kw_only=True)
class Ranking:
    score_columns: Annotated[
        tuple[str, ...],
        keep_option(
            "--score-column",
            metavar="NAME",
            help="Score that --keep-top and --buckets rank by. May be repeated: the highest score of a row counts.",
        ),
    ] = ()
    by: Annotated[
        str | None,
        keep_option(metavar="NAME", help="Weigh each row by a column of whole numbers, such as token_count."),
    ] = None
    within: Annotated[
        str | None,
        keep_option(
            metavar="NAME",
            help="Rank rows separately for each value of a column, such as label or a topic. Rows without one are left out.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RefilterOptions(Ranking, Condition):
    keep_top: Annotated[
        str | None,
        keep_option(metavar="SHARE", help="Keep the best rows, like 10%, and those that tie with the last of them."),
    ] = None
    buckets: Annotated[
        int | None,
        keep_option(
            min=2,
            max=100,
            metavar="N",
            help="Add a column bucket: N equal parts of the scored rows, from 0 for the lowest.",
        ),
    ] = None
    output_uri: Annotated[
        str, output_option("--output", metavar="URI", help="A new place for the rows, as for `run`.")
    ] = ""
    replaces: Annotated[
        bool,
        output_option(
            "--replace", help="Replace the published run, on the Hub, in one commit (of up to 5,000 shards)."
        ),
    ] = False
    input_uris: Annotated[
        tuple[str, ...],
        reading_option(
            "--input",
            metavar="URI",
            help="Current place of the input. Default: the place in the ledger, if it has the run. May be repeated.",
        ),
    ] = ()
    extends: Extend = False
    target_file_size: TargetFileSize = None
    public: Public = False
    evidence: EvidenceFile = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extends and (self.replaces or self.keep_top or self.buckets):
            raise UsageError(
                "--extend leaves the published rows as they are. Leave it out, or --replace, --keep-top and --buckets."
            )
        if self.keep_top is not None:
            share_of(self.keep_top)
            if self.min_score is not None or self.where is not None or self.keep_all:
                raise UsageError("Use only one of --keep-top, --min-score, --where and --keep-all.")
        ranks = self.score_columns or self.by or self.within
        if ranks and self.keep_top is None and self.buckets is None:
            raise UsageError(
                "--score-column, --by and --within are for --keep-top and --buckets. Add one, or leave them out."
            )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The input of a run. The annotations define the command's options."""

    crawls: Annotated[
        tuple[str, ...],
        reading_option(
            "--crawl",
            metavar="NAME",
            help="Common Crawl release of FineWeb, like CC-MAIN-2024-10. May be repeated: each is a subset of the dataset.",
        ),
    ] = ()
    input_uris: Annotated[
        tuple[str, ...],
        reading_option(
            "--input",
            metavar="URI",
            help="Your own files, instead of --crawl: a file, folder, glob or URL (hf://, s3://) of Parquet, JSON Lines or "
            "CSV. May be repeated.",
        ),
    ] = ()
    subset: Annotated[
        str | None,
        reading_option(
            metavar="NAME",
            help="Subset of the dataset for the rows of --input, like 2023. It begins the names of their shards: NAME/…",
        ),
    ] = None
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

    def __post_init__(self) -> None:
        if "" in self.input_uris:
            raise UsageError("--input is empty: is a shell variable unset? Name a file, folder, glob or URL.")
        if self.crawls and self.input_uris:
            raise UsageError("Say what to read: either --crawl CC-MAIN-2024-10 or --input PATH.")
        if self.crawls and self.subset is not None:
            raise UsageError("--subset is for --input. Each --crawl is a subset of its own name: leave --subset out.")
        for option, name in [*(("--crawl", crawl) for crawl in self.crawls), ("--subset", self.subset)]:
            if name is not None and (not _SUBSET.fullmatch(name) or name.lower() in _OWN_SUBSETS):
                raise UsageError(
                    f"{option} {name!r} cannot be the name of a subset. Use letters, digits, and - . _ inside of it, and none "
                    f"of {', '.join(sorted(_OWN_SUBSETS))}, which every dataset has."
                )
        if len({*self.crawls}) < len(self.crawls):
            raise UsageError(f"A crawl is named twice: {', '.join(self.crawls)}. Its rows would be there twice.")

    @property
    def subsets(self) -> tuple[str, ...]:
        """The crawls, sorted by name, or the --subset."""
        return tuple(sorted(self.crawls)) if self.subset is None else (self.subset,)


@dataclass(frozen=True, kw_only=True)
class Models:
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

    def __post_init__(self) -> None:
        _ = self.by_column  # raises UsageError for missing or equal names

    @property
    def by_column(self) -> dict[str, tuple[str, str | None]]:
        """Each model (a Hub name or folder) and its revision, if one is given, by score column.

        Raises UsageError if there are several models and not all have different column names (`edu=…`).
        """
        named = [name_and_model(text) for text in self.models]
        if not all(model for _, model in named) or not named:
            raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
        if len(named) > 1:
            if unnamed := [model for name, model in named if name is None]:
                raise UsageError(f"Give each of several models a name for its columns, like --model edu={unnamed[0]}.")
            check_names_differ(name for name, _ in named if name)
        return {score_column_of(name) if name else "score": with_revision(model) for name, model in named}


@dataclass(frozen=True, kw_only=True)
class RunOptions(Condition, ScoreOptions, Models, InputOptions):
    output_uri: Annotated[
        str,
        output_option(
            "--output",
            metavar="URI",
            help="A folder, a URL (s3://, hf://buckets/), or hf://datasets/USER/NAME, with @BRANCH or @refs/pr/N to publish "
            "beside main. Default for --crawl: USER/fineweb-CRAWL-MODEL, without CRAWL for several.",
        ),
    ] = ""
    extends: Extend = False
    changed: Annotated[
        Changed,
        output_option(
            help="With --extend, what to do if a published file has changed: refuse, or score its new content."
        ),
    ] = "refuse"
    public: Public = False
    target_file_size: TargetFileSize = None
    evidence: EvidenceFile = None

    def __post_init__(self) -> None:
        Condition.__post_init__(self)
        InputOptions.__post_init__(self)
        Models.__post_init__(self)
        if self.changed != "refuse" and not self.extends:
            raise UsageError("--changed is for --extend: say how to add to a published dataset, or leave it out.")
        if self.extends and self.limit_rows is not None:
            raise UsageError(
                "Use only one of --extend and --limit-rows: a limit would read one of the new files in part."
            )


class ConditionKeywords(TypedDict, total=False):
    min_score: float | None
    where: str | None
    keep_all: bool
    drop_list: Names | Mapping[Location, str] | None
    unique: bool


class RankingKeywords(TypedDict, total=False):
    score_column: Names | None
    by: str | None
    within: str | None


class RefilterKeywords(RankingKeywords, ConditionKeywords, total=False):
    keep_top: str | None
    buckets: int | None
    output: Location | None
    replace: bool
    extend: bool
    input: Location | Sequence[Location] | None
    target_file_size: str | None
    public: bool
    evidence: Location | None


class RunKeywords(ScoreKeywords, ConditionKeywords, total=False):
    crawl: Names | None
    input: Location | Sequence[Location] | None
    subset: str | None
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
    extend: bool
    changed: Changed
    public: bool
    target_file_size: str | None
    evidence: Location | None


with_run_options = with_options_of(RunOptions, labels=split_at_commas)
