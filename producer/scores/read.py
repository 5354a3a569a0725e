"""Read the distributions of a run: from the score files that it has published, or from the receipts of its finished shards."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleet.histogram import added as added_histograms
from fleet.receipt import Receipt
from fleet.scoring import Scoring
from fleet.spec import RunSpec
from fleet.storage.opening import open_parquet
from fleet.storage.published import Published
from producer.scores.distribution import Distribution, added

_READERS = 4  # files at once; decompressing releases the GIL
_BATCH_ROWS = 1 << 16
_STEPS_PER_UNIT = 1000


def published_distributions(published: Published) -> list[Distribution]:
    """One distribution for each scoring, of all rows, in steps of 0.001. Reads the score columns of every score file.

    Raises ShardError for a damaged file, TransientError for the network.
    """
    found = [_empty(scoring) for scoring in published.spec.scorings]
    with ThreadPoolExecutor(_READERS) as readers:
        for of_shard in readers.map(lambda receipt: _of_shard(published, receipt), published.receipts):
            found = [added(parts) for parts in zip(found, of_shard, strict=True)]
    return found


def distributions_so_far(spec: RunSpec, receipts: Sequence[Receipt]) -> list[Distribution]:
    """One distribution for each scoring, of the finished shards, in the wider steps of their receipts, without labels.

    There is at least one receipt.
    """
    found = []
    for number, scoring in enumerate(spec.scorings):
        histogram = added_histograms(receipt.scorings[number].histogram for receipt in receipts)
        found.append(
            Distribution(
                column=scoring.score_column,
                steps_per_unit=histogram.bins_per_unit,
                rows_by_step=histogram.rows_by_bin,
            )
        )
    return found


def _empty(scoring: Scoring) -> Distribution:
    return Distribution(column=scoring.score_column, steps_per_unit=_STEPS_PER_UNIT, rows_by_step={})


def _of_shard(published: Published, receipt: Receipt) -> list[Distribution]:
    found = []
    with open_parquet(f"{published.uri}/{receipt.scores.path}") as file:
        for scoring in published.spec.scorings:
            columns = [name for name in _counted_columns(scoring) if name]
            batches = file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
            found.append(added([_empty(scoring), *_of_batches(scoring, batches)]))
    return found


def _of_batches(scoring: Scoring, batches: Iterator[pa.RecordBatch]) -> Iterator[Distribution]:
    score, label, rounded = _counted_columns(scoring)
    for batch in batches:
        values = batch[score].to_numpy(zero_copy_only=False)
        has_score = ~np.isnan(values)  # errored rows have none
        steps = np.floor(values[has_score].astype(np.float64) * _STEPS_PER_UNIT).astype(np.int64)
        scored = pa.array(has_score)
        yield Distribution(
            column=score,
            steps_per_unit=_STEPS_PER_UNIT,
            rows_by_step=_counted(pa.array(steps)),
            labels=_counted(batch[label].filter(scored)) if label else {},
            int_scores=_counted(batch[rounded].filter(scored)) if rounded else {},
        )


def _counted_columns(scoring: Scoring) -> tuple[str, str | None, str | None]:
    """The columns of the score, the best label and the rounded score; None for those that the scoring does not add."""
    label, rounded = scoring.label_column, scoring.int_score_column
    return (
        scoring.score_column,
        label if label in scoring.added_columns else None,
        rounded if rounded in scoring.added_columns else None,
    )


def _counted(values: pa.Array) -> dict[Any, int]:
    return {one["values"]: one["counts"] for one in pc.value_counts(values).to_pylist()}
