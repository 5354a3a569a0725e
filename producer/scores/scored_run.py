"""Report how the scores of a run are spread, and show rows near a threshold, so that a person can judge where to cut."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import Location, check_number, keyword_errors, options_from, texts_of_places
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import is_place
from shardsift.fleet.run.receipt import Histogram, Receipt, row_totals
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.run.text import whole_texts
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.open_output import stored_scores
from shardsift.producer.opening import open_ledger_of
from shardsift.producer.planning.cut import Edge, RankedRun, bucket_shares, columns_of_input
from shardsift.producer.planning.inputs import absolute_uri
from shardsift.producer.planning.options import Ranking, RankingKeywords
from shardsift.producer.scores.distribution import histograms_of, score_bins, score_tables
from shardsift.producer.scores.input_rows import read_rows, source_of
from shardsift.producer.transient_errors import with_retries
from shardsift.producer.verify.source import source_shards


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoredRun:
    """The finished shards of a run, as `producer scores` shows them. `input_uris` is empty if only the output is known."""

    name: str  # the run's id, or where it is published
    spec: RunSpec
    output_uri: str
    shards: int
    receipts: Sequence[Receipt]
    input_uris: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<ScoredRun {self.name}: {len(self.receipts):,} of {self.shards:,} shards, {self._rows['rows_in']:,} rows>"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def near(
        self,
        score: float,
        *,
        count: int = 10,
        score_column: str | None = None,
        input: Location | Sequence[Location] = (),
    ) -> "list[NearRow]":
        """Return the `count` rows whose scores are nearest to `score`, the lowest score first.

        The rows have texts if the ledger has the run's input, or if `input` names it.
        """
        check_number("score", score)
        check_number("count", count, least=1, whole=True)
        with keyword_errors():
            return rows_of_run_near(self, score_column, near=score, count=count, source=texts_of_places(input))

    def edges(
        self, parts: int, *, input: Location | Sequence[Location] = (), **ranking: Unpack[RankingKeywords]
    ) -> list[Edge]:
        """Find the exact scores that divide the rows into `parts` parts with equally many rows.

        If the keyword `by` names a column of weights, the parts have equal weight instead.
        """
        if parts not in range(2, 101):
            raise UsageError(f"parts={parts!r} is wrong: it is a whole number from 2 to 100.")
        with keyword_errors():
            return edges_of_run(self, options_from(Ranking, ranking), parts, source=texts_of_places(input))

    def column(self, named: str | None) -> str:
        """Return the score column `named`. If that is None, return the one that the filter names, otherwise the only one.

        Raises UsageError if the run has no such column, or if there are several to choose from.
        """
        columns = self.spec.scoring_of
        filtered = [column for column in columns if self.spec.filter_names(column)]
        found = [named] if named else filtered or [scoring.score_column for scoring in self.spec.scorings]
        if len(found) > 1:
            by = "its filter names" if filtered else "it has"
            raise UsageError(
                f"Of {self.name}, {by} several score columns: {', '.join(found)}. Name one with --score-column."
            )
        if found[0] not in columns:
            raise UsageError(f"The run has no score column {named!r}. There are: {', '.join(columns)}.")
        return found[0]

    def shards_of_input(self, source: tuple[str, ...]) -> dict[str, Shard]:
        """Return the input's shards by name. Empty if neither `source` nor the ledger names the input.

        Raises UsageError if the named input is not the one of this run.
        """
        uris = source or self.input_uris
        return source_shards(uris, self.receipts, self.output_uri, self.spec) if uris else {}

    @property
    def histograms(self) -> dict[str, Histogram]:
        return histograms_of(self.spec, self.receipts)

    def as_json(self) -> dict[str, object]:
        """Return the object that `producer scores --json` prints. `rows_kept` counts the rows that passed the filter `where`."""
        return {
            "name": self.name,
            "shards": self.shards,
            "shards_done": len(self.receipts),
            "rows": self._rows["rows_in"],
            "errors": self._errors,
            "where": self.spec.where,
            "rows_kept": self._rows["rows_kept"],
            "columns": [
                {"column": column, "rows": histogram.rows, "bins": [asdict(one) for one in score_bins(histogram)]}
                for column, histogram in self.histograms.items()
            ],
        }

    def lines(self) -> list[str]:
        rows, rows_kept = self._rows["rows_in"], self._rows["rows_kept"]
        errors = "".join(f", {number:,} {reason} (errored)" for reason, number in self._errors.items())
        kept = f"{rows_kept / rows:.2%}" if rows else "0 %"
        lines = [
            f"scores   {self.name}",
            f"shards   {len(self.receipts):,} of {self.shards:,}",
            f"rows     {rows:,} in{errors}",
            f"kept     {rows_kept:,} ({kept}) by {self.spec.where or '--keep-all'}"
            f"{' and --drop-list' if self.spec.drop_lists else ''}",
        ]
        return [*lines, *score_tables(self.histograms)]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return row_totals(self.receipts)

    @property
    def _errors(self) -> dict[str, int]:
        """Errored rows by reason, the most frequent first."""
        rows: Counter[str] = Counter()
        for receipt in self.receipts:
            rows.update(receipt.errors)
        return dict(rows.most_common())


@with_retries
def scored_run(target: str | None, settings: Settings) -> ScoredRun:
    """Open a run by its id, or by the path or URI of its output. If `target` is None, opens the only run with done shards.

    Raises UsageError if there is no such run, if several have done shards and `target` is None, or if no shard is done.
    """
    if target and is_place(target):
        published = published_run(absolute_uri(target))
        return ScoredRun(
            name=published.uri,
            spec=published.spec,
            output_uri=published.uri,
            shards=published.shards,
            receipts=published.receipts,
        )
    with open_ledger_of(target, settings, to="show") as (_, ledger, run_id):
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


# The edges between equal parts of the rows.


@with_retries
def edges_of_run(run: ScoredRun, ranking: Ranking, parts: int, *, source: tuple[str, ...]) -> list[Edge]:
    return ranked_by(run, ranking, source).edges(bucket_shares(parts))


def ranked_by(run: ScoredRun, ranking: Ranking, source: tuple[str, ...]) -> RankedRun:
    """Prepare to rank a run's rows.

    Looks up the input, which `source` or the ledger names, only if the ranking needs a column of it.
    """
    shards = run.shards_of_input(source) if columns_of_input(run.spec, ranking) else {}
    return RankedRun(spec=run.spec, output_uri=run.output_uri, receipts=run.receipts, shards=shards, ranking=ranking)


# Rows whose score is near a threshold, with their texts.

_SHOWN_CHARACTERS = 300
_URL = "url"


@dataclass(frozen=True, kw_only=True)
class NearRow:
    """A row of the input, with its score and the text that was scored. `text` is None if the input was not read."""

    shard: str
    row: int
    score: float
    url: str | None = None
    text: str | None = None


_Row = TypeVar("_Row", bound=NearRow)


@with_retries
def rows_of_run_near(
    run: ScoredRun, column: str | None, *, near: float, count: int, source: tuple[str, ...]
) -> list[NearRow]:
    """Call `rows_near` with the input that the ledger or `source` names.

    Raises UsageError if that is not the run's input, or if the run has several score columns and `column` is None.
    """
    if not math.isfinite(near):
        raise UsageError(f"--near {near:g} is not a number that a score can be near.")
    return rows_near(run, run.column(column), near=near, count=count, source=run.shards_of_input(source))


def rows_near(
    run: ScoredRun,
    column: str,
    *,
    near: float | None,
    count: int,
    source: Mapping[str, Shard],
    most_rows: int | None = None,
) -> list[NearRow]:
    """Return the `count` rows whose scores are nearest to `near`, the lowest score first.

    If `near` is None, takes evenly spaced rows of one shard after another, up to `count`. `source` has the shards of
    the input, by name; if it is empty, the rows have no text. If `most_rows` is given, only so many rows at the start of
    each shard are candidates. Raises ShardError if a file is damaged or the input has changed, TransientError if the
    network fails.
    """
    found: list[NearRow] = []
    for receipt, table in stored_scores(run.output_uri, run.receipts, [column]):
        found += _rows_of(receipt, table[column].to_numpy()[:most_rows], near, count)
        if near is not None:
            found.sort(key=lambda row: abs(row.score - near))
        found = found[:count]
    found.sort(key=lambda row: (row.score, row.shard, row.row))
    return with_texts(found, run, run.spec.scoring_of[column], source)


def near_lines(rows: Sequence[NearRow]) -> Iterator[str]:
    for row in rows:
        yield f"{row.score:.3f}  {row.shard} row {row.row:,}{f'  {row.url}' if row.url else ''}"
        text = "(name the input with --input to see the text)" if row.text is None else " ".join(row.text.split())
        yield f"       {text[:_SHOWN_CHARACTERS]}{'…' if len(text) > _SHOWN_CHARACTERS else ''}"


def _rows_of(receipt: Receipt, scores: npt.NDArray[np.float32], near: float | None, count: int) -> list[NearRow]:
    """Choose up to `count` rows of a shard: those with scores nearest to `near`, or evenly spaced ones if it is None.

    `scores` has the scores of all the shard's rows, or only of the first ones.
    """
    scored = np.flatnonzero(~np.isnan(scores))  # errored rows have no score
    if near is None:
        chosen = scored[:: max(1, len(scored) // count)][:count]
    else:
        chosen = scored[np.argsort(np.abs(scores[scored] - near), kind="stable")][:count]
    first = receipt.first_row
    return [NearRow(shard=receipt.shard, row=first + int(row), score=float(scores[row])) for row in chosen]


def with_texts(rows: Sequence[_Row], run: ScoredRun, scoring: Scoring, source: Mapping[str, Shard]) -> list[_Row]:
    """Add URLs and texts to rows, unless `source` is empty. Raises the same errors as `rows_near`."""
    if not source:
        return list(rows)
    shown: dict[_Row, _Row] = {}
    for name in dict.fromkeys(row.shard for row in rows):
        wanted = [row for row in rows if row.shard == name]
        texts = read_texts(source_of(run.receipts, name, source).uri, [row.row for row in wanted], run.spec, scoring)
        shown |= {row: replace(row, url=texts[row.row][0], text=texts[row.row][1]) for row in wanted}
    return [shown[row] for row in rows]


def read_texts(uri: str, rows: Collection[int], spec: RunSpec, scoring: Scoring) -> dict[int, tuple[str | None, str]]:
    """Read each row's URL (None if it has none) and its scored text. Returns them by row number."""
    there_are = {name for name, _ in spec.columns}
    names = dict.fromkeys((*scoring.text_columns, scoring.text_pair_column, _URL))
    found = read_rows(uri, rows, spec, [name for name in names if name in there_are], bad={})
    urls = found[_URL].to_pylist() if _URL in found.column_names else [None] * len(found)
    texts = whole_texts(found, scoring)
    shown = ((None if url is None else str(url), text) for url, text in zip(urls, texts, strict=True))
    return dict(zip(sorted(rows), shown, strict=True))
