"""The receipt: a worker's record of the output of one shard, for the finalizer.

Only receipts and the manifest say who made an output and when; data files do not.
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
}  # logits spread over several units, probabilities over one
_LAST_BIN = 400  # in both directions; it also counts all scores beyond it, so that a receipt stays small


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """The number of rows by score. Bin `i` has scores from `i / bins_per_unit` to below `(i + 1) / bins_per_unit`.

    Empty bins are left out. Errored rows have no score and are in no bin.
    """

    bins_per_unit: int
    rows_by_bin: dict[int, int]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_bin.values())


def empty_histogram(function_to_apply: str) -> Histogram:
    return Histogram(bins_per_unit=_BINS_PER_UNIT[function_to_apply], rows_by_bin={})


def with_values(histogram: Histogram, values: "npt.NDArray[np.float32]") -> Histogram:
    """Return a histogram with scores added. `values` has the shape (rows,) and no NaN."""
    import numpy as np  # here, because it takes a quarter of a second, and most programs only read histograms

    bins = np.floor(values.astype(np.float64) * histogram.bins_per_unit).clip(-_LAST_BIN, _LAST_BIN)
    numbers, rows = np.unique(bins.astype(np.int64), return_counts=True)
    counted = zip(numbers.tolist(), rows.tolist(), strict=True)
    return added([histogram, Histogram(bins_per_unit=histogram.bins_per_unit, rows_by_bin=dict(counted))])


def added(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms. There must be at least one, and all must have bins of the same width."""
    rows = Counter[int]()
    for histogram in histograms:
        rows.update(histogram.rows_by_bin)
    return Histogram(bins_per_unit=histogram.bins_per_unit, rows_by_bin=dict(sorted(rows.items())))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """A data file or scores file in the output. Until it is published, its bytes are at `staged_path`."""

    path: str  # in the published output, such as data/CC-MAIN-2024-10/000_00000.parquet
    staged_path: str
    size_bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """The rows of one shard in a file that may also have rows of other shards."""

    file: OutputFile
    first_row: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """The errors of a worker's logits against the float32 model's, on sample texts that it scored when it started."""

    rows: int
    max_error: float
    p999_error: float  # 99.9th percentile of the errors
    flipped_share: float | None  # share of rows that the filter decides differently; None if it cannot decide them


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringReceipt:
    score_column: str  # names the scoring
    dtype: str  # the actual format, where the spec may say `auto`
    backend: str
    max_batch_tokens: int
    parity: Parity | None  # None if it was not measured
    refused_dtypes: tuple[str, ...] = ()  # formats that "auto" refused, because their scores differed too much
    faulty_ways: tuple[str, ...] = ()  # ways to run batches that ended an earlier process
    rows_in_float32: int = 0  # rows that overflow in float16 and were scored again
    histogram: Histogram  # of rows with a score
    label_histograms: tuple[Histogram, ...] = ()  # of each label's score, if there are several but not too many labels

    @property
    def format_line(self) -> str:
        return f"{self.dtype}{refusal_reason(self.refused_dtypes, self.faulty_ways)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    worker: str  # the hash from `disclosed_worker`
    attempt: int
    device: str
    versions: dict[str, str]
    started_at: float  # Unix time
    finished_at: float  # Unix time
    seconds: Mapping[str, float] = field(default_factory=dict)  # by `Phase`
    tokens: int = 0  # includes windows that an interrupted attempt had scored


OTHER_FIELDS = "others"  # counts all fields beyond a limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The record of one shard's output. `rows_in` is the sum of `rows_kept`, `rows_dropped` and `rows_errored`.

    Dropped rows include the `duplicates`.
    """

    run_id: str
    shard: str
    source_uri: str  # the input file, as named by `disclosed_source`
    source_identity: str  # identity of the bytes that were read
    source_changed: bool  # whether the file changed after the run was enqueued, and `retry` accepted the change
    first_row: int = 0  # of the shard in the input file
    rows_in: int
    rows_kept: int
    rows_dropped: int
    rows_errored: int
    rows_bad: int = 0  # errored rows that could not be read
    errors: dict[str, int]  # reason → rows
    left_out: dict[str, int] = field(default_factory=dict)  # field that the output lacks → rows that have it
    rows_listed: tuple[int, ...] = ()  # rows that each drop list of the spec has, kept by the filter or not
    scorings: tuple[ScoringReceipt, ...]  # in the order of the spec's scorings
    data: OutputFile  # shared by several shards after a merge
    data_first_row: int = 0  # of the shard in the data file
    own_data_bytes: int = 0  # size of the shard's own data file before a merge; 0 if it was not merged
    scores: OutputFile  # shared by several shards after a merge
    scores_first_row: int = 0  # of the shard in the scores file
    provenance: Provenance
    scores_provenance: Provenance | None = None  # of the attempt of an earlier run that computed the scores
    duplicates: int | None = None  # rows dropped because an earlier row has their text; None if not looked for yet
    unique_texts: str = ""  # what `producer/publishing/unique.py` says of all kept texts when it looked

    def __post_init__(self) -> None:
        if self.rows_in != self.rows_kept + self.rows_dropped + self.rows_errored:
            raise ValueError(f"Receipt of shard {self.shard} does not add up: {self}")

    @property
    def scored_by(self) -> Provenance:
        return self.scores_provenance or self.provenance

    @property
    def kept(self) -> RowsOfFile:
        return RowsOfFile(self.data, self.data_first_row, self.rows_kept)

    @property
    def scored(self) -> RowsOfFile:
        return RowsOfFile(self.scores, self.scores_first_row, self.rows_in)

    def to_json(self) -> bytes:
        return _RECEIPT.dump_json(self)

    @staticmethod
    def from_json(data: bytes | str) -> "Receipt":
        """Read a receipt from `to_json`. Raises pydantic's ValidationError for anything else."""
        return _RECEIPT.validate_json(data)


def refusal_reason(dtypes: Sequence[str], faulty_ways: Sequence[str] = ()) -> str:
    """Return a text to append to a number format: the reason why no faster format or way to run batches was used.

    `dtypes` are the formats with wrong scores, and `faulty_ways` the ways that ended a process. The text is empty
    if there are neither.
    """
    reasons = [f"in {' and '.join(dtypes)} the scores differ too much"] if dtypes else []
    reasons += [f"{' and '.join(faulty_ways)} batches ended a process"] if faulty_ways else []
    return f" ({'; '.join(reasons)})" if reasons else ""


_RECEIPT = TypeAdapter(Receipt)
ROW_COUNTS = ("rows_in", "rows_kept", "rows_dropped", "rows_errored", "duplicates")


def row_totals(receipts: Iterable[Receipt]) -> dict[str, int]:
    totals = Counter(dict.fromkeys(ROW_COUNTS, 0))
    for receipt in receipts:
        totals.update({name: getattr(receipt, name) or 0 for name in ROW_COUNTS})
    return dict(totals)


class Receipts(Sequence[Receipt]):
    """Receipts that are stored compressed and decoded on access, which takes a tenth of the memory.

    The first receipt serves as the dictionary for the compression.
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
        """Return the receipts for which `is_chosen` is true, without copying them."""
        return self._holding(list(compress(self._stored, is_chosen)))

    def _holding(self, stored: list[bytes]) -> "Receipts":
        receipts = Receipts(())
        receipts._first, receipts._stored = self._first, stored
        return receipts


# A worker's report on its attempt at a shard, sent with each renewal of the lease, for `producer status`.

_MOST_BYTES = 4096


class Phase(StrEnum):
    """A phase in the thread that scores a shard. Phases do not overlap, so their times add up to the attempt's time."""

    INPUT = "input"  # waiting for rows to be read
    TOKENIZE = "tokenize"  # waiting for the tokenizer, which works ahead in its own thread
    DEVICE = "device"
    WRITE = "write"  # waiting for the writer, or closing its files
    STAGE = "stage"  # storing the files with the output


@dataclass(frozen=True, kw_only=True)
class AttemptReport:
    """A worker's report on its attempt at a shard. `seconds` has the time of each `Phase`.

    `rows_per_second` covers the last minute, without rows from a checkpoint. `rows_written` counts the rows of finished
    windows, to which the filter has been applied. A share is from 0 to 1. It is None if unknown, or if the worker's
    version does not report it.
    """

    device: str
    rows_per_second: float
    rows_written: int
    rows_kept: int
    tokens: int
    seconds: Mapping[str, float]
    histograms: Mapping[str, Histogram] = field(default_factory=dict)  # by score column
    peak_share: float | None = None  # of the device's matmul peak, over the scoring time of this attempt
    memory_share: float | None = None  # share of the device's memory in use
    busy_share: float | None = None  # share of the last second in which the device computed
    idle_seconds: float | None = None  # since the last progress of any kind
    backend: str = ""  # the backend that runs the batches, such as graphed

    def to_json(self) -> bytes:
        """Encode the report in at most 4 KiB, because it is sent to Redis every few seconds.

        Leaves out histograms if necessary.
        """
        full = _REPORT.dump_json(self)
        return full if len(full) <= _MOST_BYTES else _REPORT.dump_json(replace(self, histograms={}))

    @staticmethod
    def from_json(content: str | None) -> "AttemptReport | None":
        try:
            return _REPORT.validate_json(content) if content else None
        except ValidationError:
            return None


_REPORT = TypeAdapter(AttemptReport)
