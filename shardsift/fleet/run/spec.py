"""The RunSpec: everything that decides what a run publishes, and nothing else.

Two specs with equal fields are the same run, on any machine and any day. An option that only changes the speed
(batch size, number of workers, lease) is a setting, not part of the spec.

Fields with their default value are left out of the JSON, so that a new field with a default does not change the ids of
existing runs. The default of an existing field must not change. A release that changes the published bytes of
existing options needs a new field, too.
"""

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pydantic import TypeAdapter

from shardsift.fleet.run.model import UNKNOWN_FIELDS_REFUSED, Model, is_folder_revision, slug, worker_queue
from shardsift.fleet.run.scoring import Scoring

WINDOW_ROWS = 8192  # rows tokenised, sorted and scored together
WINDOW_BYTES = 64 << 20  # limit of a window's bytes in Arrow, for long texts
BUCKET = "bucket"  # the column that `Buckets` adds
# The fields that `producer refilter` may change.
BY_SCORES = {"where", "best", "buckets", "drop_lists", "unique", "target_file_bytes"}
_RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")


@dataclass(frozen=True, kw_only=True)
class Ranked:
    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    columns: tuple[str, ...]  # score columns; a row's highest score counts
    within: str | None = None  # a column: rows are ranked separately for each of its values
    by: str | None = None  # input column with the weight of a row; None: each row counts 1


@dataclass(frozen=True, kw_only=True)
class Buckets(Ranked):
    """Equal parts of the rows, by score. A row's bucket is the number of edges that are not above its score."""

    edges: tuple[tuple[str | int | None, tuple[float, ...]], ...]  # (value of `within`, its edges, ascending)


@dataclass(frozen=True, kw_only=True)
class BestRows(Ranked):
    """The share of best rows that the user asked for. The card shows it. The spec's `where` has the threshold."""

    share: str  # such as 10%


@dataclass(frozen=True, kw_only=True)
class DropList:
    """A list of values, such as opted-out domains. Rows that have one of them in a column are not kept."""

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    uri: str
    field: str | None = None  # the column of the file that holds the values; None: a text file, one value a line
    column: str  # of the input
    sha256: str  # of the file
    values: int  # number of different values

    @property
    def option(self) -> str:
        return f"{self.uri}{f':{self.field}' if self.field else ''}={self.column}"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what a run publishes: input, scorings, filter and output."""

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    input_uris: tuple[str, ...]
    # The commit of a Hub dataset, else a digest of the shards' names and identities. Empty for a run that extends another:
    # its id stays the same if files are added before it is published.
    input_revision: str
    crawl: str | None
    columns: tuple[tuple[str, str], ...]  # (name, Arrow type) of every input column, in order
    scorings: tuple[Scoring, ...]  # one or more, with different score columns
    where: str | None  # SQL over columns and scores; None keeps every row
    output_uri: str
    row_columns: tuple[str, str] = ("shard", "row")  # names of the columns with the shard and row of a kept row
    only_columns: bool = False  # whether the user chose the columns, so that others are left out without a note
    folder_columns: tuple[str, ...] = ()  # the part of `columns` whose values are in folder names like `year=2024`
    subsets: tuple[str, ...] = ()  # several crawls, or the --subset; each is the first folder of its shards' names
    limit_rows: int | None = None
    rows_per_task: int | None = None  # longer Parquet files are split into shards of whole row groups
    target_file_bytes: int | None = None  # target size of merged data files; None: one file per shard
    max_bad_rows: float = 0.01  # share of a shard's rows that may be unreadable; with more, the shard fails
    extends: str | None = None  # the run whose published dataset this one adds shards to
    buckets: Buckets | None = None
    best: BestRows | None = None
    drop_lists: tuple[DropList, ...] = ()
    unique: bool = False  # whether to keep only the first of equal texts; scores files then have a digest of each text
    window_rows: int = WINDOW_ROWS
    window_bytes: int = WINDOW_BYTES

    @property
    def run_id(self) -> str:
        """The id: readable words, and 12 hex digits of the digest of all fields."""
        digest = hashlib.sha256(self.to_json()).hexdigest()[:12]
        models = slug("-".join(dict.fromkeys(scoring.model.slug for scoring in self.scorings)))
        return f"{slug(self._input_head)}.{models}.{digest}"

    @property
    def queue(self) -> str:
        return worker_queue(scoring.queue for scoring in self.scorings)

    @property
    def served_by(self) -> tuple[Model, ...]:
        """The models that a worker loads for this run, without repeats.

        Such a model may be an earlier run, whose scores are read.
        """
        return tuple(dict.fromkeys(scoring.served_by for scoring in self.scorings))

    @property
    def output_columns(self) -> tuple[str, ...]:
        columns = tuple(column for scoring in self.scorings for column in scoring.output_columns)
        return (*columns, BUCKET) if self.buckets else columns

    @property
    def _input_head(self) -> str:
        if self.crawl:
            return self.crawl
        if len(self.subsets) > 1:
            return f"{self.subsets[0]}-and-{len(self.subsets) - 1}-more"
        fixed = re.split(r"[*?\[]", disclosed_inputs(self)[0])[0].rstrip("/")
        return PurePosixPath(fixed).stem or "input"

    @property
    def subset_names(self) -> tuple[str, ...]:
        """The subsets of the dataset that the run reads: its crawls, or the value of --subset.

        Each is the first folder in the names of its shards.
        """
        return (self.crawl,) if self.crawl else self.subsets

    @property
    def publishes_only_scores(self) -> bool:
        return self.where is not None and self.where.strip().lower() == "false"

    @property
    def scoring_of(self) -> dict[str, Scoring]:
        """The scoring of each score column, including the columns of single labels."""
        return {name: one for one in self.scorings for name in (one.score_column, *one.label_score_columns)}

    def filter_names(self, column: str) -> bool:
        """Return whether the filter contains the column's name as a whole word, in upper or lower case."""
        return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", self.where or "", re.IGNORECASE) is not None

    @property
    def charted(self) -> dict[str, tuple[int, int | None]]:
        """The score columns to chart: for each scoring, its columns in the filter, or its main score if there are none.

        Columns in the filter come first. Maps each column to the index of its scoring and the index of its label, which
        is None for the main score.
        """
        found: dict[str, tuple[int, int | None]] = {}
        for index, scoring in enumerate(self.scorings):
            labels = {column: (index, label) for label, column in enumerate(scoring.label_histogram_columns)}
            columns = {scoring.score_column: (index, None), **labels}
            named = {column: indices for column, indices in columns.items() if self.filter_names(column)}
            found |= named or {scoring.score_column: (index, None)}
        return dict(sorted(found.items(), key=lambda one: not self.filter_names(one[0])))

    def has_scores_of(self, other: "RunSpec") -> bool:
        """Return whether this run gives each row the same scores as `other`, but chooses the kept rows differently."""
        places = {"output_uri", "input_uris"} if is_folder_revision(self.input_revision) else {"output_uri"}
        free = {*BY_SCORES, *places, "rows_per_task", "max_bad_rows"}
        has_same = replace(self, **{name: getattr(other, name) for name in free}) == other
        free_rows = ("where", "best", "drop_lists", "unique")
        return has_same and any(getattr(self, name) != getattr(other, name) for name in free_rows)

    @property
    def is_in_place(self) -> bool:
        """Whether the run replaces the published run whose scores it reads."""
        return any(one.scores_from and one.scores_from.name == self.output_uri for one in self.scorings)

    def to_json(self) -> bytes:
        return _SPEC.dump_json(self, exclude_defaults=True)

    @staticmethod
    def from_json(data: bytes | str) -> "RunSpec":
        """Read a spec from `to_json`. Raises pydantic's ValidationError for anything else."""
        return _SPEC.validate_json(data, strict=False)


_SPEC = TypeAdapter(RunSpec)


def is_run_id(text: str) -> bool:
    return bool(_RUN_ID.fullmatch(text))


# A shard: an input file or a part of one, and the paths of its output files.

_NAME_LIMIT_CHARS = 512
_SEGMENT_LIMIT_BYTES = 255 - len(".parquet")  # common disks allow 255 bytes in a file name
_NOT_IN_NAMES = set('\\:*?"<>|[]{}#')  # have a meaning in globs, URLs or Windows
_JOINERS = str.maketrans("", "", "\u200c\u200d")  # invisible, but part of Persian and Hindi names, and of emoji
_PART = re.compile(r"\.part-\d+$")
_SPLIT = re.compile(  # the split in a file's name, as found by `datasets`
    r"(?:^|[-._ 0-9])(train|training|test|testing|eval|evaluation|validation|valid|val|dev)(?=[-._ 0-9]|$)",
    re.IGNORECASE,
)
MOST_SHARDS_OF_FILE = 500  # each costs two concurrent requests to the Hub


@dataclass(frozen=True, kw_only=True)
class Shard:
    """An input file, or a part of one. `name` is the file's path below the input's root, without its ending."""

    name: str
    uri: str
    identity: str  # of the file's bytes, from `shardsift.fleet.inputs.identity`
    size_bytes: int | None = None
    first_row: int = 0  # of the shard in the file
    row_limit: int | None = None  # number of rows to score; None: to the end of the file
    changed: bool = False  # the file changed after the run was enqueued, and `retry` accepted the change

    def __post_init__(self) -> None:
        if not is_safe_name(self.name):
            raise ValueError(
                f"Shard name {self.name!r} cannot be used as an output path. Rename it: no control characters, none of "
                f"{' '.join(sorted(_NOT_IN_NAMES))}, no spaces at an end, at most {_SEGMENT_LIMIT_BYTES} bytes a part, and "
                f"{_NAME_LIMIT_CHARS} characters in all."
            )

    @property
    def data_path(self) -> str:
        return data_path_of(self.name)

    @property
    def scores_path(self) -> str:
        return scores_path_of(self.name)


def data_path_of(shard: str) -> str:
    """Return the path of a shard's own data file. After a merge, its rows may be in the file of an earlier shard."""
    return f"data/{shard}.parquet"


def scores_path_of(shard: str) -> str:
    return f"scores/{shard}.parquet"


def part_name(file: str, number: int) -> str:
    """Return the name of the shard for one part of a file. The names sort in the order of the parts."""
    return f"{file}.part-{number:05}"


def file_name(shard: str, files: Container[str]) -> str:
    """Return the name of the whole file to which a shard belongs.

    `files` has the names of all files. It is needed because the name of a whole file may look like that of a part.
    """
    return shard if shard in files else whole_name(shard)


def whole_name(shard: str) -> str:
    return _PART.sub("", shard)


def merge_group(shard: str) -> tuple[str, ...]:
    """Return a shard's folder, and the dataset split or `key=value` in its file name.

    Shards are merged only if these are equal. Readers take a year, a language or a split from a path, so
    the path must be true for all rows in a file.
    """
    folder, _, file = shard.rpartition("/")
    return folder, *_SPLIT.findall(file), whole_name(file) if "=" in file else ""


def is_safe_name(name: str) -> bool:
    """Return whether the name stays inside the output, and every storage can hold it.

    Allows any Unicode normalization form.
    """
    segments = name.split("/")
    return (
        len(name) <= _NAME_LIMIT_CHARS
        and name.translate(_JOINERS).isprintable()
        and not _NOT_IN_NAMES & set(name)
        and all(segment == segment.strip(" ") and segment not in ("", ".", "..") for segment in segments)
        and all(len(segment.encode()) <= _SEGMENT_LIMIT_BYTES for segment in segments)
    )


# A published output reveals no path, host or bucket of the machines that made it.
#
# Input files are named relative to their root, a model folder by its last part, and a worker by a hash that is constant
# within a run. Hub names stay complete: they reveal nothing about a machine, and a revision means nothing without them.

_HUB = "hf://"
_ROOT = re.compile(  # the root of a file system, a bucket or a home folder, perhaps with a glob
    r"(\w+://[^/]*|(file://)?/(root|(home|Users)(/[^/*?\[]+)?)|)/*(?P<glob>([^/*?\[]*[*?\[].*)?)"
)


def disclosed_spec(spec: RunSpec) -> RunSpec:
    """Return the spec to publish, without private paths and names.

    Its `run_id` differs from the run's own id, which is a digest of the complete spec.
    """
    return replace(
        spec,
        input_uris=disclosed_inputs(spec),
        output_uri=_last_part(spec.output_uri),
        drop_lists=tuple(replace(one, uri=_last_part(one.uri)) for one in spec.drop_lists),
        scorings=tuple(_disclosed_scoring(scoring) for scoring in spec.scorings),
    )


def disclosed_inputs(spec: RunSpec) -> tuple[str, ...]:
    """Return the inputs to publish: Hub URIs unchanged, and only the last part of others (file, folder or glob).

    The names of home folders and buckets are private. If an input is itself a home folder or a bucket, its glob is
    published, or `**` if it has none.
    """
    roots = ((uri, None if uri.startswith(_HUB) else _ROOT.fullmatch(uri)) for uri in spec.input_uris)
    return tuple((root["glob"] or "**") if root else _last_part(uri) for uri, root in roots)


def disclosed_source(shard: Shard, subsets: Container[str]) -> str:
    """Return a shard's source to publish: a Hub URI unchanged, otherwise the path below the input's root.

    The path is the last parts of the shard's URI, as many as its name has. If the name begins with one of `subsets`,
    this part does not count, because it is no folder below the root, and the path would begin above the root.
    """
    if shard.uri.startswith(_HUB):
        return shard.uri
    first, *others = shard.name.split("/")
    parts = others if first in subsets else [first, *others]
    return "/".join(shard.uri.split("/")[-len(parts) :])


def disclosed_model(model: Model) -> str:
    """Return the model's name to publish: a Hub name unchanged, and only the last part of a local path."""
    is_on_hub = model.name.startswith(_HUB) or not model.is_folder
    return model.name if is_on_hub else PurePosixPath(model.name).name


def _disclosed_scoring(scoring: Scoring) -> Scoring:
    scores_from = scoring.scores_from and _disclosed(scoring.scores_from)
    return replace(scoring, model=_disclosed(scoring.model), scores_from=scores_from)


def _disclosed(model: Model) -> Model:
    return replace(model, name=disclosed_model(model))


def disclosed_worker(spec: RunSpec, worker: str) -> str:
    """Return a hash of a worker's name, because the name contains its host and process id."""
    return f"worker-{hashlib.sha256(f'{spec.run_id} {worker}'.encode()).hexdigest()[:8]}"


def _last_part(uri: str) -> str:
    """Return the last part of a path, or a Hub URI unchanged.

    For a glob, return everything from the part before its first wildcard: `shards/**/*.parquet`.
    """
    if uri.startswith(_HUB):
        return uri
    parts = [part for part in uri.rstrip("/").split("/") if part] or [uri]
    first_wild = next((index for index, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return "/".join(parts[max(0, min(first_wild, len(parts)) - 1) :])
