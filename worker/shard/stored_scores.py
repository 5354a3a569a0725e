"""A scorer without a model: it reads the scores that an earlier run has stored of the same rows.

A run that uses it differs from the earlier one in its filter, and publishes what a fresh run with that filter would.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import ShardError
from fleet.run.model import Model
from fleet.run.receipt import OutputFile, Receipt
from fleet.run.scorers import published_run
from fleet.storage.errors import translated
from fleet.storage.hub_access import filesystem_of
from fleet.storage.opening import Published
from worker.scoring import GoOn, Place, ScorerInfo, Scores
from worker.shard.checkpoint import SideScores, copied_whole


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Rows whose scores are stored."""

    place: Place
    rows: int


class StoredScores:
    """The scores of all scorings of a run. One shard's scores file is open at a time, so ask for its windows in order."""

    info = ScorerInfo(device="none", backend="stored scores")

    def __init__(self, published: Published) -> None:
        self._published = published
        self._receipts = {receipt.shard: receipt for receipt in published.receipts}
        self._open: tuple[Place, SideScores] | None = None
        self._latest: tuple[StoredRows, dict[str, Scores]] | None = None

    def of(self, score_column: str) -> "StoredColumn":
        """The scorer of one scoring of the run."""
        return StoredColumn(stored=self, score_column=score_column)

    def scores_of(self, rows: StoredRows) -> dict[str, Scores]:
        """By score column. Raises ShardError if the run has no scores of these texts, or its file is damaged."""
        if self._latest is None or self._latest[0] != rows:
            place = rows.place
            found = self._scores_file(place).scores_of(place.first_row, place.text_digests)
            if found is None:
                raise ShardError(
                    f"Shard {place.shard}, rows {place.first_row:,} to {place.first_row + rows.rows - 1:,}: these are not the "
                    f"texts that the run at {self._published.uri} scored. The file has changed since, or an earlier release "
                    "scored it. Score it again with `producer run`."
                )
            columns = [scoring.score_column for scoring in self._published.spec.scorings]
            self._latest = rows, dict(zip(columns, found, strict=True))
        return self._latest[1]

    def _scores_file(self, place: Place) -> SideScores:
        if self._open is None or not place.is_in_file_of(self._open[0]):
            self._open = (place, self._opened(self._receipt(place).scores))
        return self._open[1]

    def _receipt(self, place: Place) -> Receipt:
        receipt, uri = self._receipts.get(place.shard), self._published.uri
        if receipt is None:
            raise ShardError(
                f"The run at {uri} was published without the shard {place.shard}, so it has no scores of it."
            )
        if receipt.source_identity != place.source_identity:
            raise ShardError(
                f"The file of shard {place.shard} has changed since the run at {uri} scored it. "
                "Score it again with `producer run`."
            )
        return receipt

    def _opened(self, file: OutputFile) -> SideScores:
        """A copy of a scores file, which is removed when it is closed. Raises ShardError if it is not the published one."""
        uri = f"{self._published.uri}/{file.path}"
        with tempfile.NamedTemporaryFile() as copy:
            with translated(f"Reading {uri}"):
                filesystem, path = filesystem_of(uri)
                with filesystem.open(path, "rb") as stored:
                    is_whole = copied_whole(stored, file, copy)
            if not is_whole:
                raise ShardError(
                    f"{uri} is not the file that its manifest lists. Repair it with the command that made that run."
                )
            return SideScores(pq.ParquetFile(copy.name), self._published.spec)


@dataclass(frozen=True, kw_only=True)
class StoredColumn:
    """The scorer that returns the stored scores of one scoring."""

    stored: StoredScores
    score_column: str
    info = StoredScores.info

    def encode(self, texts: pa.LargeStringArray, place: Place) -> StoredRows:
        return StoredRows(place=place, rows=len(texts))

    def score_encoded(self, encoded: StoredRows, go_on: GoOn, earlier: Scores | None) -> Scores:
        """Raises ShardError as `StoredScores.scores_of` does."""
        scores = self.stored.scores_of(encoded)[self.score_column]
        go_on(encoded.rows)
        return scores


def load_stored_scores(model: Model, _settings: Any) -> StoredScores:
    """The stored scores of the run that the model names.

    Raises UsageError if it is not published there any more, or something else is.
    """
    return StoredScores(published_run(model.name, model.revision))
