"""The receipt: what a worker hands the finalizer about the output of one shard.

Only receipts and the manifest say who made an output and when; data files never do.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import compress
from typing import TYPE_CHECKING, overload

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# Histograms of scores. All bins have the same fixed width, so the histograms of shards can be added.

_BINS_PER_UNIT = {
    "none": 4,
    "sigmoid": 20,
    "softmax": 20,
}  # logits are spread over several units, probabilities over one
_LAST_BIN = 400  # on either side of zero; it also counts all scores beyond it, so that a receipt stays small


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """`rows_by_bin[i]` rows have a score of at least `i / bins_per_unit` and less than `(i + 1) / bins_per_unit`.

    Bins without rows are left out. Errored rows have no score and are in no bin.
    """

    bins_per_unit: int
    rows_by_bin: dict[int, int]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_bin.values())


def empty_histogram(function_to_apply: str) -> Histogram:
    """A histogram with bins that suit the scores of this function."""
    return Histogram(bins_per_unit=_BINS_PER_UNIT[function_to_apply], rows_by_bin={})


def with_values(histogram: Histogram, values: "npt.NDArray[np.float32]") -> Histogram:
    """Add scores to a histogram. `values` has the shape (rows,) and no NaN."""
    import numpy as np  # here, because most programs only read histograms, and numpy takes a quarter of a second

    bins = np.floor(values.astype(np.float64) * histogram.bins_per_unit).clip(-_LAST_BIN, _LAST_BIN)
    numbers, rows = np.unique(bins.astype(np.int64), return_counts=True)
    counted = zip(numbers.tolist(), rows.tolist(), strict=True)
    return added([histogram, Histogram(bins_per_unit=histogram.bins_per_unit, rows_by_bin=dict(counted))])


def added(histograms: Iterable[Histogram]) -> Histogram:
    """Add up histograms. There is at least one, and all have bins of the same width."""
    rows = Counter[int]()
    for histogram in histograms:
        rows.update(histogram.rows_by_bin)
    return Histogram(bins_per_unit=histogram.bins_per_unit, rows_by_bin=dict(sorted(rows.items())))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """A file that is uploaded and not published yet. Until then its bytes are at `staged_path`."""

    path: str  # in the output, e.g. data/CC-MAIN-2024-10/000_00000.parquet
    staged_path: str
    size_bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """The rows of one shard in a file, which may have those of several."""

    file: OutputFile
    first_row: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """The difference between the worker's logits and the model's own, on the sample that it scored when it started."""

    rows: int
    max_error: float
    p999_error: float  # 99.9th percentile of the errors
    flipped_share: float | None  # rows on which the filter decides differently; None if it reads other columns


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringReceipt:
    """How one scoring of the run was computed on a shard, and how its scores are spread."""

    score_column: str  # names the scoring
    dtype: str  # as it was computed: the spec may say `auto`
    backend: str
    max_batch_tokens: int
    parity: Parity | None  # None if the trial was left out
    refused_dtypes: tuple[str, ...] = ()  # formats that "auto" tried first, but whose scores differed too much
    histogram: Histogram  # of rows with a score
    label_histograms: tuple[Histogram, ...] = ()  # of each label's score, if there are several labels, and not too many

    @property
    def format_line(self) -> str:
        """A line with the number format and, if a faster one was refused, the reason."""
        return f"{self.dtype}{refusal_reason(self.refused_dtypes)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The worker and device of a shard, and the times of the work (Unix seconds). `seconds` is by `Phase`."""

    worker: str  # as `shardsift/fleet/run/spec.py` names it
    attempt: int
    device: str
    versions: dict[str, str]
    started_at: float
    finished_at: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    tokens: int = 0  # including texts that an interrupted attempt had begun


OTHER_FIELDS = "others"  # in place of a name, if there are many


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """`rows_in == rows_kept + rows_dropped + rows_errored`, always."""

    run_id: str
    shard: str
    source_uri: str  # the input file, as `shardsift/fleet/run/spec.py` names it
    source_identity: str  # of the bytes that were read
    source_changed: bool  # after the run was enqueued: `retry` took the file as it is now
    first_row: int = 0  # in the file, of the rows that were read
    rows_in: int
    rows_kept: int
    rows_dropped: int
    rows_errored: int
    rows_bad: int = 0  # of the errored ones, those that could not be read
    errors: dict[str, int]  # reason → rows
    left_out: dict[str, int] = field(default_factory=dict)  # field that the run does not have → rows that have it
    scorings: tuple[ScoringReceipt, ...]  # in the order of the spec's
    data: OutputFile  # of several shards, if the run has a target size of files
    data_first_row: int = 0  # in the data file, of the shard's kept rows
    own_data_bytes: int = 0  # size of the shard's own data file before it was merged with others; 0 if it was not
    scores: OutputFile  # of several shards too
    scores_first_row: int = 0  # in the scores file, of the shard's rows
    provenance: Provenance
    scores_provenance: Provenance | None = None  # of the attempt that computed the scores, if an earlier run did

    def __post_init__(self) -> None:
        if self.rows_in != self.rows_kept + self.rows_dropped + self.rows_errored:
            raise ValueError(f"Receipt of shard {self.shard} does not add up: {self}")

    @property
    def scored_by(self) -> Provenance:
        """The attempt that computed the scores: this one, or that of an earlier run."""
        return self.scores_provenance or self.provenance

    @property
    def kept(self) -> RowsOfFile:
        """Its kept rows in the data file."""
        return RowsOfFile(self.data, self.data_first_row, self.rows_kept)

    @property
    def scored(self) -> RowsOfFile:
        """All of its rows in the scores file."""
        return RowsOfFile(self.scores, self.scores_first_row, self.rows_in)

    def to_json(self) -> bytes:
        return _RECEIPT.dump_json(self)

    @staticmethod
    def from_json(data: bytes | str) -> "Receipt":
        """The receipt written by `to_json`. Raises pydantic's ValidationError on anything else."""
        return _RECEIPT.validate_json(data)


def refusal_reason(dtypes: Sequence[str]) -> str:
    """The end of a sentence about the number format: why no faster one was used."""
    return f" (in {' and '.join(dtypes)} the scores differ too much)" if dtypes else ""


_RECEIPT = TypeAdapter(Receipt)
ROW_COUNTS = ("rows_in", "rows_kept", "rows_dropped", "rows_errored")


def row_totals(receipts: Iterable[Receipt]) -> dict[str, int]:
    """The sums of ROW_COUNTS over all shards."""
    totals = Counter(dict.fromkeys(ROW_COUNTS, 0))
    for receipt in receipts:
        totals.update({name: getattr(receipt, name) for name in ROW_COUNTS})
    return dict(totals)


class Receipts(Sequence[Receipt]):
    """Receipts that are decoded on access, which takes a tenth of the memory.

    Each is compressed by what it shares with the first.
    """

    def __init__(self, receipts: Iterable[Receipt]) -> None:
        self._first, self._stored = b"", list[bytes]()
        for receipt in receipts:
            plain = receipt.to_json()
            self._first = self._first or plain
            packer = zlib.compressobj(zdict=self._first)
            self._stored.append(packer.compress(plain) + packer.flush())

    def __len__(self) -> int:
        return len(self._stored)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipts) and list(self) == list(other)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> "Receipts": ...
    def __getitem__(self, index: int | slice) -> "Receipt | Receipts":
        if isinstance(index, int):
            return Receipt.from_json(zlib.decompressobj(zdict=self._first).decompress(self._stored[index]))
        return self._holding(self._stored[index])

    def only(self, is_chosen: Iterable[bool]) -> "Receipts":
        """Some of them, without a second copy."""
        return self._holding(list(compress(self._stored, is_chosen)))

    def _holding(self, stored: list[bytes]) -> "Receipts":
        receipts = Receipts(())
        receipts._first, receipts._stored = self._first, stored
        return receipts


# What a worker says of its attempt at a shard with each renewal of the lease, so that `producer status` can show it.

_MOST_BYTES = 4096


class Phase(StrEnum):
    """A phase of the thread that scores a shard. It is in one phase at a time, so they add up to the attempt's time."""

    INPUT = "input"  # it waits for rows to be read
    TOKENIZE = "tokenize"  # it waits for the tokenizer, which works ahead in a thread of its own
    DEVICE = "device"
    WRITE = "write"  # it waits for the writer, or closes its files
    STAGE = "stage"  # it stores the files with the output


@dataclass(frozen=True, kw_only=True)
class AttemptReport:
    """`rows_per_second` is over the last minute; rows from a checkpoint do not count. `seconds` has the time of each phase.

    `rows_written` are the rows that the filter has decided: of finished windows. The shares are from 0 to 1, and None if they
    are not known or the worker is of an earlier version; a reader of an earlier version ignores them.
    """

    device: str
    rows_per_second: float
    rows_written: int
    rows_kept: int
    tokens: int
    seconds: Mapping[str, float]
    histograms: Mapping[str, Histogram] = field(default_factory=dict)  # by score column
    peak_share: float | None = None  # of the device's matmul peak, over the time that the scores of this attempt took
    memory_share: float | None = None  # part of the device's memory in use
    busy_share: float | None = None  # part of the last second in which the device computed anything
    idle_seconds: float | None = None  # since the last progress of any kind
    backend: str = ""  # how batches run, such as graphed

    def to_json(self) -> bytes:
        """Encode the report in at most 4 KiB, because a worker replaces it in Redis every few seconds."""
        full = _REPORT.dump_json(self)
        return full if len(full) <= _MOST_BYTES else _REPORT.dump_json(replace(self, histograms={}))

    @staticmethod
    def from_json(content: str | None) -> "AttemptReport | None":
        """Decode a report. None if there is none, or another version wrote it."""
        try:
            return _REPORT.validate_json(content) if content else None
        except ValidationError:
            return None


_REPORT = TypeAdapter(AttemptReport)
