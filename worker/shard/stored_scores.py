"""Read the scores that an earlier run stored for the same rows, in the place of a checkpoint.

A run with such scores has another filter than the earlier run. It publishes the same as if it had scored the rows.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.fleet.errors import ShardError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.output_columns import ERROR
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.run.text import digests_in
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.open_output import Published, sound_copy
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.worker.scoring import ScorerInfo, Scores
from shardsift.worker.shard.writer import errors_of_each


class StoredScores:
    """The stored scores of an earlier run, used in the place of scorers.

    Read shards and windows in order, because only one file is open at a time.
    """

    info = ScorerInfo(device="none", backend="stored scores")

    def __init__(self, published: Published, *, scratch_dir: Path | None = None) -> None:
        self._published = published
        self._scratch_dir = scratch_dir
        self._places = {receipt.shard: number for number, receipt in enumerate(published.receipts)}
        self._open: tuple[OutputFile, RowGroups] | None = None
        self._shard: tuple[tuple[str, str], ShardScores] | None = None  # key: name and identity

    def scores_of(self, shard: Shard, first_row: int, rows: int, digests: Sequence[str]) -> tuple[Scores, ...]:
        """Read the scores of a window, one entry per scoring.

        Raises ShardError if the earlier run did not score these texts, or if its file is damaged.
        """
        found = self._of_shard(shard).scores_of(first_row, digests)
        if found is None:
            raise ShardError(
                f"Shard {shard.name}, rows {first_row:,} to {first_row + rows - 1:,}: these are not the texts that the run at "
                f"{self._published.uri} scored. The file has changed since, or an earlier release scored it. Score it again "
                "with `producer run`."
            )
        return found

    def _of_shard(self, shard: Shard) -> "ShardScores":
        wanted = shard.name, shard.identity
        if self._shard is None or self._shard[0] != wanted:
            receipt = self.receipt_of(shard.name, shard.identity)
            if self._open is None or self._open[0] != receipt.scores:
                uri, scratch_dir = self._published.uri, self._scratch_dir
                file = sound_copy(uri, receipt.run_id, receipt.scores, scratch_dir=scratch_dir)
                self._open = receipt.scores, RowGroups(file)
            self._shard = wanted, ShardScores(self._open[1], receipt, self._published.spec)
        return self._shard[1]

    def receipt_of(self, shard: str, source_identity: str) -> Receipt:
        """Return the shard's receipt from the earlier run.

        Raises ShardError if that run did not score the shard, or scored other bytes.
        """
        number, uri = self._places.get(shard), self._published.uri
        if number is None:
            raise ShardError(f"The run at {uri} was published without the shard {shard}, so it has no scores of it.")
        receipt = self._published.receipts[number]
        if receipt.source_identity != source_identity:
            raise ShardError(
                f"The file of shard {shard} has changed since the run at {uri} scored it. "
                "Score it again with `producer run`."
            )
        return receipt


def load_stored_scores(model: Model, settings: Settings | None) -> StoredScores:
    """Open the stored scores of a published run. The name of `model` is the URI of the run's output.

    Raises UsageError if the run is no longer published there.
    """
    published = published_run(model.name, model.revision)
    return StoredScores(published, scratch_dir=settings.scratch_dir if settings else None)


class ShardScores:
    """The scores of one shard, read from its scores file window by window.

    Like a checkpoint, the file has the raw logits and a digest of the texts. Read windows in order: only one row group
    is in memory at a time.
    """

    def __init__(self, stored: RowGroups, receipt: Receipt, spec: RunSpec) -> None:
        self._stored = stored
        self._scorings = spec.scorings
        self._columns = [ERROR.name, *map(_column, spec.scorings)]
        self._windows = {first: (end, digests) for (first, end), digests in digests_in(stored.file, receipt).items()}
        self._offset = receipt.scores_first_row - receipt.first_row

    def scores_of(self, first_row: int, digests: Sequence[str]) -> tuple[Scores, ...] | None:
        """Read the scores of a window, one entry per scoring. None if no scores of texts with these digests are stored.

        Stored scores get to rows only here and in `checkpoint.from_bytes`. Both compare the digests first.
        """
        end, stored = self._windows.get(first_row, (first_row, None))
        if stored != list(digests):
            return None
        lines = pa.concat_tables(self._stored.between(first_row + self._offset, end + self._offset, self._columns))
        reasons = lines.column(ERROR.name).to_pylist()
        errors = {row: reason for row, reason in enumerate(reasons) if reason is not None}
        found = []
        for scoring, own in zip(self._scorings, errors_of_each(errors, self._scorings), strict=True):
            values = _values(lines.column(_column(scoring)), scoring.outputs)
            values[[row for row in errors if row not in own]] = 0  # another scoring's error: not stored, and not used
            found.append(Scores(values=values, errors=own))
        return tuple(found)


def _column(scoring: Scoring) -> str:
    return scoring.logits_column if scoring.has_logits_column else scoring.score_column


def _values(column: pa.ChunkedArray, outputs: int) -> npt.NDArray[np.float32]:
    """Read logits of shape (rows, outputs), with NaN for null."""
    values = np.full((len(column), outputs), np.nan, dtype=np.float32)
    plain = column.drop_null().combine_chunks()
    flat = plain.flatten() if pa.types.is_list(plain.type) else plain
    values[column.is_valid().to_numpy()] = flat.to_numpy(zero_copy_only=False).reshape(-1, outputs)
    return values
