"""Write the two output files of a shard: the kept rows, and the scores of all rows.

Their bytes depend only on the rows and the spec. The files do not say which worker wrote them, or when.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.fleet.inputs.drop_lists import loaded_lists
from shardsift.fleet.run.filter import Filter
from shardsift.fleet.run.output_columns import (
    ERROR,
    ROW,
    SHARD,
    TEXT_DIGEST,
    kept_schema,
    row_fields,
    scores_schema,
    scoring_fields,
)
from shardsift.fleet.run.receipt import OTHER_FIELDS, Histogram, empty_histogram, with_values
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import BUCKET, Buckets, RunSpec, Shard
from shardsift.fleet.run.text import as_metadata, row_digests
from shardsift.fleet.storage.parquet import ParquetFileWriter, WrittenFile
from shardsift.worker.scoring import Scores, apply
from shardsift.worker.shard.reader import Window

_MOST_LEFT_OUT = 20  # fields that are counted by name


@dataclass
class RowCounts:
    """The number of rows by outcome, the reasons of errored rows, and histograms of scores."""

    histograms: dict[str, Histogram] = field(default_factory=dict)  # by column of a score
    rows_in: int = 0
    rows_kept: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    rows_bad: int = 0  # errored rows that could not be read
    left_out: dict[str, int] = field(default_factory=dict)  # field that is in no column → rows that have it
    rows_listed: list[int] = field(default_factory=list)  # for each drop list: rows that are on it
    in_float32: Counter[str] = field(default_factory=Counter)  # column of a score → rows that overflow in float16

    @property
    def rows_errored(self) -> int:
        return sum(self.errors.values())

    @property
    def rows_dropped(self) -> int:
        return self.rows_in - self.rows_kept - self.rows_errored


class ShardWriter:
    """Writes both output files of a shard, window by window. Without `filter`, all rows with scores are kept.

    Rows of the run's drop lists are never kept. Raises ShardError if a list cannot be read.

    As a context manager, it always closes the files at the end.
    """

    def __init__(
        self, folder: Path, input_schema: pa.Schema, shard: Shard, spec: RunSpec, filter: Filter | None = None
    ) -> None:
        self.counts = RowCounts(
            rows_listed=[0] * len(spec.drop_lists),
            histograms={
                column: empty_histogram(scoring.function_to_apply)
                for scoring in spec.scorings
                for column in (scoring.score_column, *scoring.label_histogram_columns)
            },
        )
        self._shard = shard
        self._spec = spec
        self._kept_schema = kept_schema(input_schema, spec)
        self._filter = filter
        self._lists = loaded_lists(spec.drop_lists)
        self._files = ExitStack()
        self._kept, self._scores = (
            self._files.enter_context(ParquetFileWriter(folder / name, schema, has_checksums=spec.unique))
            for name, schema in (("data.parquet", self._kept_schema), ("scores.parquet", scores_schema(spec)))
        )
        self._text_digests: dict[int, Sequence[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write(self, window: Window, scores: Sequence[Scores], digests: Sequence[str]) -> None:
        """Write and count the rows of a window. `scores` and `digests` (of the texts) have one element per scoring."""
        unreadable = {row: str(bad) for row, bad in window.bad.items()}
        errors = dict(sorted((row_errors(scores, self._spec.scorings) | unreadable).items()))
        scored = with_scores(window, scores, errors, self._shard, self._spec)
        kept = self._kept_rows(scored, errors)
        self._text_digests[window.first_row] = digests
        self._kept.write(scored.take(pa.array(kept)).cast(self._kept_schema))
        self._scores.write(_score_lines(scored, window, scores, errors, self._shard, self._spec))
        self.counts.rows_in += len(scored)
        self.counts.rows_kept += len(kept)
        for column, histogram in self.counts.histograms.items():
            self.counts.histograms[column] = with_values(histogram, scored[column].drop_null().to_numpy())
        for row, error in errors.items():
            reason = window.bad[row].reason if row in window.bad else error
            self.counts.errors[reason] = self.counts.errors.get(reason, 0) + 1
        for scoring, one in zip(self._spec.scorings, scores, strict=True):
            self.counts.in_float32[scoring.score_column] += one.in_float32
        self.counts.rows_bad += len(window.bad)
        for name in chain.from_iterable(window.left_out):
            name = name if name in self.counts.left_out or len(self.counts.left_out) < _MOST_LEFT_OUT else OTHER_FIELDS
            self.counts.left_out[name] = self.counts.left_out.get(name, 0) + 1

    def _kept_rows(self, scored: pa.Table, errors: Mapping[int, str]) -> npt.NDArray[np.int64]:
        """Return the numbers of the rows that pass the filter, ascending. Errored and drop-listed rows never pass."""
        passed = self._filter.keep(scored) if self._filter else np.arange(len(scored), dtype=np.int64)
        passed = np.setdiff1d(passed, np.array(list(errors), dtype=np.int64))
        for number, one in enumerate(self._lists):
            listed = one.rows_in(scored)
            self.counts.rows_listed[number] += len(listed)
            passed = np.setdiff1d(passed, listed)
        return passed

    def close(self) -> tuple[WrittenFile, WrittenFile]:
        return self._kept.close(), self._scores.close(**as_metadata(self._text_digests))


def row_errors(scores: Sequence[Scores], scorings: Sequence[Scoring]) -> dict[int, str]:
    """Join the errors of all scorings, by row. A row with an error of one scoring is errored for all."""
    if len(scores) == 1:
        return scores[0].errors
    reasons: dict[int, list[str]] = {}
    for scoring, found in zip(scorings, scores, strict=True):
        for row, reason in found.errors.items():
            reasons.setdefault(row, []).append(f"{scoring.score_column}: {reason}")
    return {row: "; ".join(reasons[row]) for row in sorted(reasons)}


def errors_of_each(errors: Mapping[int, str], scorings: Sequence[Scoring]) -> list[dict[int, str]]:
    """Split the errors that `row_errors` joined. Returns a dict for each scoring, from row to reason."""
    if len(scorings) == 1:
        return [dict(errors)]
    columns = [scoring.score_column for scoring in scorings]
    beginning = re.compile(f"(?:^|; )({'|'.join(map(re.escape, columns))}): ")
    found: dict[str, dict[int, str]] = {column: {} for column in columns}
    for row, error in errors.items():
        _, *parts = beginning.split(error)
        for column, reason in zip(parts[::2], parts[1::2], strict=True):
            found[column][row] = reason
    return list(found.values())


def with_scores(
    window: Window, scores: Sequence[Scores], errors: Mapping[int, str], shard: Shard, spec: RunSpec
) -> pa.Table:
    """Return the window's rows with columns added for shard, row number and scores.

    Also adds the bucket if the run has buckets. Errored rows have null scores.
    """
    rows = window.rows
    for added, values in zip(row_fields(spec), _row_columns(window, shard), strict=True):
        rows = rows.append_column(added, values)
    for scoring, found in zip(spec.scorings, scores, strict=True):
        columns = score_columns(found, errors, scoring)
        for added in columns.schema:
            rows = rows.append_column(added, columns.column(added.name))
    return rows.append_column(BUCKET, _bucket_column(rows, spec.buckets)) if spec.buckets else rows


def _bucket_column(rows: pa.Table, buckets: Buckets) -> pa.Array:
    """Return the bucket of each row: how many of the edges are at most its score.

    If `buckets.within` names a column, each of its values has edges of its own. The bucket is null for a row without a
    score, or with a value that has no edges.
    """
    scores = np.fmax.reduce([rows[name].to_numpy() for name in buckets.columns])
    found = np.full(len(rows), -1)
    for value, edges in buckets.edges:
        places = np.searchsorted(np.array(edges, np.float32), scores, side="right")
        has_value = _equals(rows[buckets.within], value) if buckets.within else True
        found = np.where(has_value, places, found)
    return pa.array(found, mask=np.isnan(scores) | (found < 0))


def _equals(column: pa.ChunkedArray, value: str | int | None) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.equal(column, pa.scalar(value, column.type)).fill_null(False))


def _row_columns(window: Window, shard: Shard) -> tuple[pa.Array, pa.Array]:
    rows = len(window.rows)
    return pa.repeat(shard.name, rows), pa.array(np.arange(window.first_row, window.first_row + rows))


def score_columns(scores: Scores, errors: Mapping[int, str], scoring: Scoring) -> pa.Table:
    errored = np.isin(np.arange(len(scores.values)), list(errors))
    values = apply(scoring.function_to_apply, np.where(errored[:, None], np.float32(0), scores.values))
    top = values.max(axis=1)
    columns = {
        scoring.score_column: top,
        scoring.int_score_column: np.round(np.clip(top, 0, 5)).astype(np.int64),
        scoring.label_column: np.array(scoring.labels)[values.argmax(axis=1)],
        **dict(zip(scoring.label_score_columns, values.T, strict=False)),
    }
    fields = scoring_fields(scoring)
    return pa.table([pa.array(columns[field.name], field.type, mask=errored) for field in fields], pa.schema(fields))


def _score_lines(
    scored: pa.Table,
    window: Window,
    scores: Sequence[Scores],
    errors: Mapping[int, str],
    shard: Shard,
    spec: RunSpec,
) -> pa.Table:
    schema = scores_schema(spec)
    columns = {name: scored.column(name) for name in spec.output_columns}
    columns[SHARD.name], columns[ROW.name] = _row_columns(window, shard)
    columns[ERROR.name] = pa.array([errors.get(row) for row in range(len(scored))], ERROR.type)
    if spec.unique:
        columns[TEXT_DIGEST.name] = row_digests(window.rows, spec.scorings)
    for scoring, found in zip(spec.scorings, scores, strict=True):
        if scoring.has_logits_column:
            columns[scoring.logits_column] = _logits(found, errors, schema.field(scoring.logits_column).type)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _logits(scores: Scores, errors: Mapping[int, str], data_type: pa.DataType) -> pa.Array:
    return pa.array([None if row in errors else values for row, values in enumerate(scores.values)], data_type)
