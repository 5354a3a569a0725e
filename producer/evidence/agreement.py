"""Compare two runs of the same input. The scores of one run are the labels of all rows that both runs have scored.

One pass over both runs counts rows by cells: narrow ranges of scores. The memory depends on the number of cells and not on
the number of rows. Rows in one cell get the same rank. There are at least 16 cells between two powers of 2.
In addition, quantiles of the first shard divide its rows into 64 parts of about equal size. If the other shards are
like the first one, Spearman's correlation is within 0.001 of the correlation of exact ranks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.identity import are_of_other_bytes
from shardsift.fleet.run.filter import Filter
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.manifest import files_digest
from shardsift.fleet.storage.open_output import stored_scores
from shardsift.producer.evidence.evaluation import (
    Agreement,
    DisagreeingRow,
    Evaluation,
    LeftOut,
    StratumLabels,
    Subject,
    evaluation_of,
    label_file,
)
from shardsift.producer.evidence.intervals import Floats, Measured, Part, measured_parts
from shardsift.producer.evidence.sheet import LABEL
from shardsift.producer.evidence.strata import Scores, Stratum, cells_of, text_of
from shardsift.producer.planning.cut import Integers, RankedRun, Values, keys_of, scores_of_keys
from shardsift.producer.scores.distribution import lowest_kept
from shardsift.producer.scores.scored_run import ScoredRun, with_texts

_PARTS = np.arange(1, 64) / 64  # quantiles of the first shard
_CELLS = 1 << 15
_VALUES = 256  # upper limit for the number of values of --within


class Both(NamedTuple):
    """The rows of a shard that have a score in both compared runs. `labels` has the other run's scores.

    `rows` has the row numbers in the input. `numbers` has, for each row, the index of its value of the column `--within` in
    the list of all values.
    """

    shard: str
    rows: Integers
    numbers: Integers
    scores: Scores
    labels: Scores


class Counts(NamedTuple):
    """`rows` has the number of rows for each combination of the other fields. All arrays have shape (combinations,)."""

    numbers: Integers  # indices of the values of `--within`
    slots: Integers  # number of thresholds at or below the score
    good: Integers  # 0 or 1
    scores: Integers  # cells of the scores, from `_cells`
    labels: Integers  # cells of the labels, from `_cells`
    rows: Integers

    def with_value(self, number: int) -> "Counts":
        return Counts(*(one[self.numbers == number] for one in self))


def compared(subject: Subject, other: ScoredRun) -> Evaluation:
    """Measure the thresholds of a score, with another run's scores as labels.

    The labels are the other run's score column of the same name, otherwise the one that its filter names, otherwise its
    only one. Raises UsageError if it has several to choose from, if no row has both scores, or if neither `--positive` nor
    the other run's filter says which of its scores are good.
    """
    run, column, threshold = subject.run, subject.column, subject.threshold
    label_column = column if column in other.spec.scoring_of else other.column(None)
    positive = subject.question.positive or _own_condition(other, label_column)
    theirs = {receipt.shard: receipt for receipt in other.receipts}
    common = [
        one
        for one in run.receipts
        if one.shard in theirs and not are_of_other_bytes(one.source_identity, theirs[one.shard].source_identity)
    ]
    if not common:
        raise UsageError(f"{run.name} and {other.name} have no shard in common. Name runs of the same input.")
    ranked = subject.ranked(subject.within, common)
    values: Values = [] if subject.within else [None]
    stored = partial(stored_scores, other.output_uri, [theirs[one.shard] for one in common], [label_column])
    counts, parts = _counted(_both(ranked, stored(), values), subject.thresholds, positive)
    numbers = np.unique(counts.numbers).tolist() if subject.within else []
    by_value = {text_of(values[number]): counts.with_value(number) for number in numbers}
    furthest = _furthest(_both(ranked, stored(), values), counts, parts, subject.question.disagreeing)
    shards = run.shards_of_input(subject.source or run.input_uris or other.input_uris) if furthest else {}
    strata = [*_strata(counts, subject.thresholds)]
    judged = {} if threshold is None else {subject.thresholds.index(threshold): threshold}
    return evaluation_of(
        subject,
        positive=positive,
        labels=label_file(strata, file=f"{other.name}, {label_column}", sha256=files_digest(other.receipts)),
        strata=strata,
        thresholds=_measured(counts, dict(enumerate(subject.thresholds))),
        values={value: _measured(found, judged)[0] for value, found in by_value.items() if judged},
        agreement=Agreement(
            run_id=other.receipts[0].run_id,
            spearman=_spearman(counts),
            values={value: _spearman(found) for value, found in by_value.items()},
            left_out=tuple(_left_out(one, len(common), int(counts.rows.sum())) for one in (run, other)),
        ),
        disagreeing=with_texts(furthest, run, run.spec.scoring_of[column], shards),
    )


def _own_condition(other: ScoredRun, column: str) -> str:
    threshold = lowest_kept(other.spec.where, column)
    if threshold is None:
        raise UsageError(
            f"The filter of {other.name} is not one threshold. Say which of its scores are good: --positive "
            f'"{LABEL} >= 3"'
        )
    return f"{LABEL} >= {threshold:.9g}"


def _both(ranked: RankedRun, stored: Iterable[tuple[Receipt, pa.Table]], values: Values) -> Iterator[Both]:
    for (receipt, indices, (keys, _)), (theirs, table) in zip(ranked.read(values), stored, strict=True):
        labels = table.column(0).to_numpy()
        places = indices + (receipt.first_row - theirs.first_row)
        found = np.flatnonzero((places >= 0) & (places < len(labels)))
        found = found[~np.isnan(labels[places[found]])]
        rows, keys = indices[found] + receipt.first_row, keys[found]
        yield Both(receipt.shard, rows, keys >> 32, scores_of_keys(keys), labels[places[found]])


def _counted(shards: Iterable[Both], thresholds: Sequence[float], positive: str) -> tuple[Counts, list[Scores]]:
    """Count the rows of all shards by the fields of Counts. Raises UsageError if no row has a score in both runs.

    Also returns the quantiles of the first shard's scores and labels, which `_cells` takes as `parts`.
    """
    keep, edges = Filter(positive, pa.schema([(LABEL, pa.float32())])), np.array(thresholds, np.float32)
    shape = (_VALUES, len(edges) + 1, 2, _CELLS, _CELLS)
    rows, parts = Counter[int](), list[Scores]()
    for both in shards:
        if len(both.rows):
            parts = parts or [np.quantile(one, _PARTS, method="lower") for one in (both.scores, both.labels)]
            slots = np.searchsorted(edges, both.scores, side="right")
            good = np.zeros_like(slots)
            good[keep.keep(pa.table({LABEL: both.labels}))] = 1
            kinds = np.ravel_multi_index((both.numbers, slots, good, *_cells(both, parts)), shape)
            rows.update(dict(zip(*(one.tolist() for one in np.unique(kinds, return_counts=True)), strict=True)))
    if not rows:
        raise UsageError("No row has a score in both runs. Name runs of the same input.")
    numbers, slots, good, scores, labels = np.unravel_index(list(rows), shape)
    return Counts(numbers, slots, good, scores, labels, np.array(list(rows.values()))), parts


def _cells(both: Both, parts: Sequence[Scores]) -> Iterator[Integers]:
    """Yield two arrays with the number of a cell for each row: of its score, and of its label, the other run's score.

    A cell is a narrow range of scores; a higher number means higher scores. `parts` has quantiles of the scores and
    quantiles of the labels. Each quantile splits the cell that contains it.
    """
    for scores, edges in zip((both.scores, both.labels), parts, strict=True):
        keys = keys_of(scores, np.zeros(len(scores), np.int64))
        yield cells_of(keys, np.inf) + np.searchsorted(edges, scores, side="right")


def _ranks(cells: Integers, rows: Integers) -> Floats:
    """Return the mean rank of the rows in each cell, as a share of all rows. Shape (_CELLS,).

    A cell is a numbered narrow range of scores, from `_cells`. `rows[i]` rows are in cell `cells[i]`. The rows of a cell that
    occurs several times in `cells` are added up.
    """
    counted = np.bincount(cells, rows, minlength=_CELLS)
    found: Floats = (np.cumsum(counted) - counted / 2) / counted.sum()
    return found


def _spearman(counts: Counts) -> float | None:
    """Return Spearman's correlation. None if all rows have the same rank in one of the runs."""
    one, other = (_ranks(cells, counts.rows)[cells] - 0.5 for cells in (counts.scores, counts.labels))
    spread = np.sqrt((counts.rows * one**2).sum() * (counts.rows * other**2).sum())
    return float((counts.rows * one * other).sum() / spread) if spread else None


def _measured(counts: Counts, threshold_of: Mapping[int, float]) -> list[Measured]:
    """Measure the filter at each threshold in `threshold_of`.

    Its keys are the indices of these thresholds in the list that the rows of `counts` were counted by.

    All rows are labelled, so both limits of an interval equal the estimate.
    """

    def part(here: npt.NDArray[np.bool_]) -> Part:
        rows = int(counts.rows[here].sum())
        return Part(rows, rows, int((counts.rows * counts.good)[here].sum()))

    divided = ([(part(counts.slots > slot), part(counts.slots <= slot))] for slot in threshold_of)
    return measured_parts(divided, [*threshold_of.values()])


def _strata(counts: Counts, thresholds: Sequence[float]) -> Iterator[StratumLabels]:
    bounds = pairwise([-np.inf, *np.array(thresholds, np.float32).tolist(), np.inf])
    for slot, (low, high) in enumerate(bounds):
        here = counts.slots == slot
        rows, good = int(counts.rows[here].sum()), int((counts.rows * counts.good)[here].sum())
        if rows:
            yield StratumLabels(stratum=Stratum(low=low, high=high), rows=rows, labels=rows, good=good)


def _left_out(run: ScoredRun, shards: int, rows: int) -> LeftOut:
    scored = sum(receipt.rows_in - receipt.rows_errored for receipt in run.receipts)
    return LeftOut(name=run.name, shards=len(run.receipts) - shards, rows=scored - rows)


def _furthest(shards: Iterable[Both], counts: Counts, parts: Sequence[Scores], most: int) -> list[DisagreeingRow]:
    """Return the `most` rows whose ranks in the two runs differ most, the largest difference first. For 0, reads nothing."""
    ranks = [_ranks(cells, counts.rows) for cells in (counts.scores, counts.labels)]
    found: list[DisagreeingRow] = []
    for both in shards if most else ():
        own, other = (rank[cells] for rank, cells in zip(ranks, _cells(both, parts), strict=True))
        found += [
            DisagreeingRow(
                shard=both.shard,
                row=int(both.rows[index]),
                score=float(both.scores[index]),
                label=float(both.labels[index]),
                rank=float(own[index]),
                label_rank=float(other[index]),
            )
            for index in np.argsort(-np.abs(own - other), kind="stable")[:most]
        ]
        found = sorted(found, key=lambda row: -abs(row.rank - row.label_rank))[:most]
    return found
