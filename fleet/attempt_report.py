"""What a worker says of its attempt at a shard with each renewal of the lease, so that `producer status` can show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pydantic import TypeAdapter, ValidationError

from fleet.histogram import Histogram

_MOST_BYTES = 4096


class Phase(StrEnum):
    """What the thread that scores a shard is doing. It is in one phase at a time, so they add up to the attempt's time."""

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
    memory_share: float | None = None  # of the device's memory that is taken
    busy_share: float | None = None  # of the last second, in which the device computed anything
    idle_seconds: float | None = None  # since the last progress of any kind

    def to_json(self) -> bytes:
        """At most 4 KiB: a worker adds this much to Redis, and replaces it every few seconds."""
        full = _REPORT.dump_json(self)
        return full if len(full) <= _MOST_BYTES else _REPORT.dump_json(replace(self, histograms={}))

    @staticmethod
    def from_json(content: str | None) -> "AttemptReport | None":
        """None if there is none, or one of another version."""
        try:
            return _REPORT.validate_json(content) if content else None
        except ValidationError:
            return None


_REPORT = TypeAdapter(AttemptReport)
