"""Find the scores of a run, published at a path or URI or with the ledger, and report how they are spread."""

from collections import Counter
from dataclasses import asdict, dataclass

from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.process.wording import counted, is_place
from fleet.run.receipt import Histogram, Receipt
from fleet.run.scorers import published_run
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from producer.opening import open_ledger_of, patient
from producer.planning.inputs import absolute_uri
from producer.scores.distribution import histograms_of, score_bins, score_table


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """The finished shards of a run, as `producer scores` shows them. `input_uris` are empty if only the output is known."""

    name: str  # the run's id, or where it is published
    spec: RunSpec
    output_uri: str
    shards: int
    receipts: tuple[Receipt, ...]
    input_uris: tuple[str, ...] = ()

    def scoring(self, column: str | None) -> Scoring:
        """The scoring with this score column, or the only one. Raises UsageError if there is none."""
        columns = ", ".join(scoring.score_column for scoring in self.spec.scorings)
        if column is None and len(self.spec.scorings) > 1:
            raise UsageError(f"{self.name} has several score columns: {columns}. Name one with --column.")
        for scoring in self.spec.scorings:
            if column in (None, scoring.score_column):
                return scoring
        raise UsageError(f"The run has no score column {column!r}. There are: {columns}.")

    @property
    def histograms(self) -> dict[str, Histogram]:
        return histograms_of(self.spec, self.receipts)

    def as_json(self) -> dict[str, object]:
        """`shards_done` of `shards` are in it. `where` is the run's filter, which has kept `rows_kept`."""
        return {
            "name": self.name,
            "shards": self.shards,
            "shards_done": len(self.receipts),
            "rows": self._rows("rows_in"),
            "errors": self._errors,
            "where": self.spec.where,
            "rows_kept": self._rows("rows_kept"),
            "columns": [
                {"column": column, "rows": histogram.rows, "bins": [asdict(one) for one in score_bins(histogram)]}
                for column, histogram in self.histograms.items()
            ],
        }

    def lines(self) -> list[str]:
        rows, rows_kept = self._rows("rows_in"), self._rows("rows_kept")
        errors = "".join(f", {number:,} {reason} (errored)" for reason, number in self._errors.items())
        kept = f"{rows_kept / rows:.2%}" if rows else "0 %"
        lines = [
            f"scores   {self.name}",
            f"shards   {len(self.receipts):,} of {self.shards:,}",
            f"rows     {rows:,} in{errors}",
            f"kept     {rows_kept:,} ({kept}) by {self.spec.where or '--keep-all'}",
        ]
        for column, histogram in self.histograms.items():
            table = [f"  {line}" for line in score_table(histogram).splitlines()]
            lines += ["", f"{column}: {counted(histogram.rows, 'row')} with a score", *table]
        return lines

    def _rows(self, fate: str) -> int:
        return sum(getattr(receipt, fate) for receipt in self.receipts)

    @property
    def _errors(self) -> dict[str, int]:
        """Errored rows by reason, the most frequent first."""
        rows: Counter[str] = Counter()
        for receipt in self.receipts:
            rows.update(receipt.errors)
        return dict(rows.most_common())


@patient
def scored_run(target: str, settings: Settings) -> ScoredRun:
    """Open what `producer scores RUN|URI` names. Raises UsageError if there is no such run or no shard of it is done."""
    if is_place(target):
        return _published(absolute_uri(target))
    with open_ledger_of(target, settings) as (_, ledger, run_id):
        spec, receipts = ledger.spec(run_id), tuple(ledger.receipts(run_id))
        shards = ledger.counts(run_id).shards
    if not receipts:
        raise UsageError(f"No shard of {run_id} is done yet: producer status {run_id}")
    return ScoredRun(
        name=run_id,
        spec=spec,
        output_uri=spec.output_uri,
        shards=shards,
        receipts=receipts,
        input_uris=spec.input_uris,
    )


def _published(uri: str) -> ScoredRun:
    published = published_run(uri)
    return ScoredRun(
        name=published.uri,
        spec=published.spec,
        output_uri=published.uri,
        shards=published.shards,
        receipts=published.receipts,
    )
