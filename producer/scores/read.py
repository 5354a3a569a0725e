"""Find the scores of a run: published at a path or URI, or still with the ledger while the run goes on."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.process.wording import is_place
from fleet.run.receipt import Receipt
from fleet.run.receipt import added as added_histograms
from fleet.run.scorers import published_run
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from fleet.storage.opening import Published, open_parquet
from producer.opening import open_ledger_of, patient
from producer.planning.plan import absolute_uri
from producer.scores.distribution import Distribution, ScoreReport, added


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """`published` None: only the receipts of the shards that are done. `input_uris` are empty if only the output is known."""

    name: str
    spec: RunSpec
    shards: int
    receipts: tuple[Receipt, ...]
    published: Published | None
    input_uris: tuple[str, ...] = ()

    def scoring(self, column: str | None) -> Scoring:
        """The scoring with this score column. The first if None. Raises UsageError if there is none."""
        for scoring in self.spec.scorings:
            if column in (None, scoring.score_column):
                return scoring
        there_are = ", ".join(scoring.score_column for scoring in self.spec.scorings)
        raise UsageError(f"The run has no score column {column!r}. There are: {there_are}.")


@patient
def scored_run(target: str, settings: Settings) -> ScoredRun:
    """Open what `producer scores RUN|URI` names. Raises UsageError if there is no such run or no shard of it is done."""
    if is_place(target):
        return _of_published(published_run(absolute_uri(target)))
    with open_ledger_of(target, settings) as (_, ledger, run_id):
        spec = ledger.spec(run_id)
        if ledger.publication(run_id):
            return _of_published(published_run(spec.output_uri), name=run_id, input_uris=spec.input_uris)
        receipts, shards = tuple(ledger.receipts(run_id)), ledger.counts(run_id).shards
    if not receipts:
        raise UsageError(f"No shard of {run_id} is done yet: producer status {run_id}")
    return ScoredRun(
        name=run_id, spec=spec, shards=shards, receipts=receipts, published=None, input_uris=spec.input_uris
    )


@patient
def report_of(run: ScoredRun) -> ScoreReport:
    """The distributions of all score columns. Of a published run every score file is read."""
    distributions = (
        published_distributions(run.published) if run.published else distributions_so_far(run.spec, run.receipts)
    )
    return ScoreReport(
        name=run.name,
        shards=run.shards,
        shards_done=len(run.receipts),
        rows=sum(receipt.rows_in for receipt in run.receipts),
        errors=_errors(run.receipts),
        where=run.spec.where,
        rows_kept=sum(receipt.rows_kept for receipt in run.receipts),
        distributions=tuple(distributions),
    )


def _of_published(published: Published, *, name: str | None = None, input_uris: tuple[str, ...] = ()) -> ScoredRun:
    return ScoredRun(
        name=name or published.uri,
        spec=published.spec,
        shards=len(published.receipts) + len(published.left_out),
        receipts=published.receipts,
        published=published,
        input_uris=input_uris,
    )


def _errors(receipts: Iterable[Receipt]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for receipt in receipts:
        rows.update(receipt.errors)
    return dict(rows.most_common())


# Read the distributions of a run: from the score files that it has published, or from the receipts of its finished shards.

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
