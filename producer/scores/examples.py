"""Some rows of one finished shard, kept, dropped and near the threshold, for a person to judge. Reads little of it."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import ShardError, UsageError
from fleet.inputs.formats import has_footer
from fleet.ledger import Ledger
from fleet.ledger.results import read_shard_details
from fleet.run.receipt import Receipt
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.identity import are_of_other_bytes, identity_now
from fleet.storage.opening import open_output
from producer.scores.distribution import threshold_of
from producer.scores.shown_rows import ShownRow, shown_rows

MOST_ROWS = 5000  # of the beginning of a shard: a bound on what is read, whatever its size
_OF_EACH_KIND = 3
_NEAREST = 30  # of which the rows near the threshold are chosen
_MOST_CHARACTERS = 500
_BATCH_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class ExampleRow:
    row: int
    score: float
    url: str | None
    text: str  # its beginning, in one line


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Chosen at random among the first `rows` rows of the shard. `near` is empty if the filter is not a threshold."""

    shard: str
    rows: int
    threshold: float | None
    kept: tuple[ExampleRow, ...]
    near: tuple[ExampleRow, ...]
    dropped: tuple[ExampleRow, ...]


def examples(ledger: Ledger, run_id: str, shard: str, *, seed: object) -> Examples:
    """The same seed chooses the same rows. Reads the beginnings of the shard's scores, of its kept rows and of its input.

    Raises UsageError if the shard is not done, or if the run does not say which rows were kept. Raises ShardError for files
    that cannot be read, such as those that the Hub does not show before a commit, and TransientError for the network.
    """
    spec = ledger.spec(run_id)
    (found,) = read_shard_details(ledger.redis, run_id, [shard])
    if found.receipt is None:
        raise UsageError(f"Shard {shard} of {run_id} is not done yet.")
    scoring = spec.scorings[0]
    threshold = threshold_of(spec.where, scoring.score_column)
    scores = _scores(spec, scoring, found.receipt)
    kinds = _chosen(scores, _kept_rows(spec, found.receipt, len(scores)), threshold, random.Random(str(seed)))
    texts = _texts(ledger, spec, scoring, found.receipt, {row for rows in kinds.values() for row in rows})
    shown = {kind: tuple(_rows(rows, scores, texts)) for kind, rows in kinds.items()}
    return Examples(shard=shard, rows=len(scores), threshold=threshold, **shown)


def _scores(spec: RunSpec, scoring: Scoring, receipt: Receipt) -> np.ndarray:
    """Of the first rows; NaN for an errored one."""
    with open_output(spec.output_uri, receipt.run_id).open_file(receipt.scores) as file:
        first = _first_rows(file, [scoring.score_column])
        parts = [batch[scoring.score_column].to_numpy(zero_copy_only=False) for batch in first]
    return np.concatenate(parts) if parts else np.empty(0)


def _kept_rows(spec: RunSpec, receipt: Receipt, upto: int) -> set[int]:
    """The numbers of the kept rows among the first ones. The data file has them in the order of the input."""
    if spec.row_columns is None:
        raise UsageError("The kept rows of this run do not say which rows of the input they are (--row-columns none).")
    column = spec.row_columns[1]
    kept: set[int] = set()
    with open_output(spec.output_uri, receipt.run_id).open_file(receipt.data) as file:
        for batch in _first_rows(file, [column]):
            kept.update(row for row in batch[column].to_pylist() if row < upto)
    return kept


def _first_rows(file: BinaryIO, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with translated("Reading the output"):
        left = MOST_ROWS
        for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(
            _BATCH_ROWS, columns=columns, use_threads=False
        ):
            yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return


def _chosen(
    scores: np.ndarray, kept: set[int], threshold: float | None, chances: random.Random
) -> dict[str, list[int]]:
    """The row numbers of each kind. A row near the threshold is not shown as kept or dropped too."""
    scored = [int(row) for row in np.flatnonzero(~np.isnan(scores))]
    by_distance = sorted(scored, key=lambda row: abs(float(scores[row]) - threshold)) if threshold is not None else []
    near = _some(by_distance[:_NEAREST], chances)
    return {
        "near": near,
        "kept": _some([row for row in scored if row in kept and row not in near], chances),
        "dropped": _some([row for row in scored if row not in kept and row not in near], chances),
    }


def _some(rows: Sequence[int], chances: random.Random) -> list[int]:
    return sorted(chances.sample(rows, min(_OF_EACH_KIND, len(rows))))


def _texts(ledger: Ledger, spec: RunSpec, scoring: Scoring, receipt: Receipt, rows: set[int]) -> dict[int, ShownRow]:
    """Of the input, which must have the bytes that were scored."""
    (shard,) = ledger.shards(receipt.run_id, [receipt.shard])
    is_known = has_footer(shard.uri)  # to identify a file of lines, all of it would have to be read
    if is_known and are_of_other_bytes(identity_now(shard.uri)[0], receipt.source_identity):
        raise ShardError(f"{shard.uri} has other bytes than those that were scored, so its rows are not shown.")
    return shown_rows(shard.uri, rows, spec, scoring)


def _rows(rows: Sequence[int], scores: np.ndarray, texts: Mapping[int, ShownRow]) -> Iterator[ExampleRow]:
    for row in rows:
        text = " ".join(texts[row].text.split())
        shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
        yield ExampleRow(row=row, score=round(float(scores[row]), 3), url=texts[row].url, text=shown)
