"""Find the scores of a run: published at a path or URI, or still with the ledger while the run goes on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.errors import UsageError
from fleet.receipt import Receipt
from fleet.scoring import Scoring
from fleet.settings import Settings
from fleet.spec import RunSpec
from fleet.storage.published import Published
from fleet.stored_scores import published_run
from fleet.target import is_place
from producer.opening import open_ledger_of
from producer.patience import patient
from producer.plan import absolute_uri
from producer.scores.read import distributions_so_far, published_distributions
from producer.scores.report import ScoreReport


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
