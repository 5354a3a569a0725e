"""The receipt: what a worker hands the finalizer about the output of one shard.

The one place, with the manifest, that says who made an output and when; data files never do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from fleet.histogram import Histogram


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that is uploaded and not yet published. `staged_path` is where its bytes lie until then."""

    path: str  # in the output, e.g. data/CC-MAIN-2024-10/000_00000.parquet
    staged_path: str
    size_bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How far the logits of the worker's fast way were from the model's own, on the sample it scored when it started."""

    rows: int
    max_error: float
    p999_error: float  # what 999 of 1,000 logits stay within
    flipped_share: float | None  # of the rows that the filter decides otherwise; None if it reads other columns


@dataclass(frozen=True, kw_only=True)
class ScoringReceipt:
    """How one scoring of the run was computed on a shard, and how its scores are spread."""

    score_column: str  # names the scoring
    dtype: str  # as it was computed: the spec may say `auto`
    backend: str
    max_batch_tokens: int
    parity: Parity | None  # None if the trial was left out
    refused_dtypes: tuple[str, ...] = ()  # that "auto" tried first, and whose scores differed too much
    histogram: Histogram  # of the rows that have a score
    label_histograms: tuple[Histogram, ...] = ()  # of each label's score, if there are several labels, and not too many

    @property
    def format_told(self) -> str:
        """The number format, and why it is not a faster one."""
        return f"{self.dtype}{refusal_told(self.refused_dtypes)}"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Who worked on the shard, on what, and when (Unix seconds). `seconds` has the time of each phase; see `Phase`."""

    worker: str  # as `fleet/disclosure.py` names it
    attempt: int
    device: str
    versions: dict[str, str]
    started_at: float
    finished_at: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    tokens: int = 0  # with those of texts that an interrupted attempt had begun


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """`rows_in == rows_kept + rows_dropped + rows_errored`, always."""

    run_id: str
    shard: str
    source_uri: str  # the input file, as `fleet/disclosure.py` names it
    source_identity: str  # of the bytes that were read
    source_changed: bool  # after the run was enqueued: `retry` took the file as it is now
    data: OutputFile
    scores: OutputFile
    rows_in: int
    rows_kept: int
    rows_dropped: int
    rows_errored: int
    errors: dict[str, int]  # reason → rows
    scorings: tuple[ScoringReceipt, ...]  # in the order of the spec's
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.rows_in != self.rows_kept + self.rows_dropped + self.rows_errored:
            raise ValueError(f"Receipt of shard {self.shard} does not add up: {self}")

    def to_json(self) -> bytes:
        return _RECEIPT.dump_json(self)

    @staticmethod
    def from_json(data: bytes | str) -> "Receipt":
        """The receipt written by `to_json`. Raises pydantic's ValidationError on anything else."""
        return _RECEIPT.validate_json(data)


def refusal_told(dtypes: Sequence[str]) -> str:
    """The end of a sentence about the format that was used instead of these."""
    return f" (in {' and '.join(dtypes)} the scores differ too much)" if dtypes else ""


_RECEIPT = TypeAdapter(Receipt)
