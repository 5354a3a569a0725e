"""A scorer without a model: it reads the scores that an earlier run has stored of the same rows.

A run that uses it differs from the earlier one in its filter. It publishes what a fresh run with that filter would.
"""

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import ShardError, UsageError
from fleet.model import Model
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.manifest import mark_of, receipts_listed, spec_of
from fleet.storage.opening import open_output
from fleet.stored_scores import read_manifest
from worker.scoring import GoOn, Place, ScorerInfo, Scores
from worker.shard.side_scores import SideScores


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Rows whose scores are stored."""

    place: Place
    rows: int


class StoredScores:
    """One shard's scores file is open at a time: windows are to be asked for in order."""

    info = ScorerInfo(device="none", backend="stored scores")

    def __init__(self, uri: str, run_id: str, spec: RunSpec, receipts: list[Receipt]) -> None:
        self._uri = uri
        self._spec = spec
        self._output = open_output(uri, run_id)
        self._receipts = {receipt.shard: receipt for receipt in receipts}
        self._open: tuple[str, SideScores] | None = None

    def encode(self, texts: pa.LargeStringArray, place: Place) -> StoredRows:
        return StoredRows(place=place, rows=len(texts))

    def score_encoded(self, encoded: StoredRows, go_on: GoOn, earlier: Scores | None) -> Scores:
        """Raises ShardError if the earlier run has no scores of these rows, or its file is damaged."""
        place = encoded.place
        found = self._scores_file(place.shard).scores_of(place.first_row, encoded.rows)
        if found is None:
            raise ShardError(f"The run at {self._uri} has no scores of the rows from {place.first_row:,} on.")
        go_on(encoded.rows)
        (scores,) = found
        return scores

    def _scores_file(self, shard: str) -> SideScores:
        if self._open is None or self._open[0] != shard:
            self._open = (shard, self._opened(shard))
        return self._open[1]

    def _opened(self, shard: str) -> SideScores:
        if shard not in self._receipts:
            raise ShardError(f"The run at {self._uri} has no shard {shard}.")
        file, copy = self._receipts[shard].scores, tempfile.TemporaryFile()  # noqa: SIM115  # closed with its reader
        with self._output.open_file(file) as stored:
            shutil.copyfileobj(stored, copy)
        copy.seek(0)
        if hashlib.file_digest(copy, "sha256").hexdigest() != file.sha256:
            raise ShardError(f"{self._uri}/{file.path} is damaged. The command that made that run mends it.")
        return SideScores(pq.ParquetFile(copy), self._spec)


def load_stored_scores(model: Model, _settings: Any) -> StoredScores:
    """The stored scores of the run that the model names. Raises UsageError if nothing is published there any more."""
    manifest = read_manifest(model.name)
    mark, spec = mark_of(manifest), spec_of(manifest)
    if mark is None or spec is None:
        raise UsageError(f"The manifest at {model.name} was damaged since this run was enqueued.")
    return StoredScores(model.name, mark.run_id, spec, receipts_listed(manifest, mark.run_id))
