"""Join the labels of a sheet with the stored scores of its run, and measure each threshold."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike

import numpy as np
import numpy.typing as npt

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import Location, text_of_place
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.producer.evidence.agreement import compared
from shardsift.producer.evidence.evaluation import (
    NO_THRESHOLD,
    Evaluation,
    Question,
    StratumLabels,
    Subject,
    evaluation_of,
    label_file,
)
from shardsift.producer.evidence.intervals import LabelledStratum, Measured, measured
from shardsift.producer.evidence.sheet import WEIGHT, ArrowTable, Labels, good_rows, is_sheet, read_labels
from shardsift.producer.evidence.strata import Scores, Stratum, check_divides, text_of
from shardsift.producer.planning.cut import Integers, RankedRun, Values, scores_of_keys
from shardsift.producer.scores.distribution import Bin, lowest_kept, score_bins
from shardsift.producer.scores.scored_run import ScoredRun, scored_run
from shardsift.producer.transient_errors import with_retries

_FEW = 0.001  # share of the rows
_OFF_BY = 0.01  # tolerance for a number of drawn rows that is computed from a weight


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The number of a run's rows in each range of scores, and the scores of the sheet's rows.

    `edges` divides the scores into ranges. `values` has the values of `--within`. `rows` has shape (values, edges + 1).
    `scores` and `numbers` have one element for each row of the sheet; `numbers` has indices in `values`.
    """

    edges: Scores
    rows: Integers
    values: Values
    scores: Scores
    numbers: Integers

    def count(self, stratum: Stratum, number: int | None, *, at_least: float = -np.inf) -> int:
        """Count a stratum's rows with a score of `at_least` or more.

        `number`, an index in `values`, limits the count to rows with that value.
        """
        lows = np.concatenate([[-np.inf], self.edges])
        here = (lows >= stratum.low) & (lows < stratum.high) & (lows >= np.float32(at_least))
        own = [text_of(value) == stratum.value or stratum.within is None for value in self.values]
        return int(self.rows[own if number is None else [number]][:, here].sum())


def labels_from(named: Location | ArrowTable, settings: Settings, *, is_weighted: bool = True) -> Labels | ScoredRun:
    """Read a sheet of labelled rows, or open the run or dataset whose scores are the labels.

    If `is_weighted` is false, every row had the same chance to be drawn, and the sheet needs no weights.
    """
    if isinstance(named, (str, PathLike)) and not is_sheet(named):
        return scored_run(text_of_place(named), settings)
    return read_labels(named, is_weighted=is_weighted)


@with_retries
def evaluate_run(
    run: ScoredRun,
    labels: Labels | ScoredRun,
    question: Question,
    *,
    score_column: str | None = None,
    within: str | None = None,
    source: tuple[str, ...] = (),
) -> Evaluation:
    """Measure the thresholds of a score. At the one to judge, also measure each value of the column `within`.

    The labels are a sheet, or the scores of another run of the same input. The thresholds are the question's, the run's
    own, and those of `producer scores`. Raises UsageError if the labelled rows were not drawn from this run, if all labels
    are alike, or if a stratum has no labels.
    """
    column = run.column(score_column)
    threshold, thresholds = _asked(run, column, question)
    subject = Subject(
        run=run,
        column=column,
        question=question,
        threshold=threshold,
        thresholds=thresholds,
        within=within,
        source=source,
    )
    if isinstance(labels, ScoredRun):
        return compared(subject, labels)
    if question.disagreeing:
        raise UsageError("--disagreeing compares two runs. Name another run of the same input with --labels.")
    drawn_within = _drawn_within(labels, within)
    if within and threshold is None:
        raise UsageError(NO_THRESHOLD)
    return _by_labels(replace(subject, within=drawn_within or within), labels, drawn_within)


def _by_labels(subject: Subject, labels: Labels, drawn_within: str | None) -> Evaluation:
    """Measure each threshold with the labels of a sheet.

    `drawn_within` is the column by whose values the rows of the sheet were drawn. None if they were not drawn by a column.
    """
    threshold, within = subject.threshold, subject.within
    filtered = lowest_kept(subject.run.spec.where, subject.column)
    good, positive = good_rows(labels, subject.question.positive, threshold if filtered is None else filtered)
    _check_unlike(labels, good, positive)
    ranked = subject.ranked(drawn_within)
    joined = of_values = _joined(ranked, labels, subject.thresholds)
    _check_drawn(labels, joined)
    found = {stratum: _labelled(labels, good, joined, stratum, subject.thresholds) for stratum in _ordered(labels)}
    if lacking := [stratum for stratum, one in found.items() if not len(one.is_good)]:
        raise UsageError(f"No row with {lacking[0]} is labelled in {labels.name}. Label at least one of each stratum.")
    figures = measured([*found.values()], subject.thresholds)
    for one in figures:
        if one.threshold in subject.question.at:
            check_divides(one.threshold, kept=one.rows_kept, rows=one.rows)
    strata = [
        StratumLabels(stratum=stratum, rows=one.all.rows, labels=one.all.labels, good=one.all.good)
        for stratum, one in found.items()
    ]
    if within != drawn_within:
        ranked = subject.ranked(within)
        of_values = _joined(ranked, labels, subject.thresholds)
    return evaluation_of(
        subject,
        positive=positive,
        labels=label_file(strata, file=labels.name, sha256=labels.digest, weighted=labels.is_weighted),
        strata=strata,
        thresholds=figures,
        values=_by_value(labels, good, of_values, threshold) if within and threshold is not None else {},
        notes=ranked.of_unranked("are in no line of a value"),
    )


def _drawn_within(labels: Labels, within: str | None) -> str | None:
    """Return the column by whose values the rows were drawn, if any. Raises UsageError if `within` is another column."""
    drawn = labels.strata[0].within if labels.is_weighted and len(labels.table) else None
    if within and drawn not in (None, within):
        raise UsageError(
            f"The rows of {labels.name} were drawn within {drawn}, not within {within}. Leave --within out."
        )
    return drawn


def _ordered(labels: Labels) -> list[Stratum]:
    return sorted(set(labels.strata), key=lambda stratum: (stratum.value, stratum.low))


def _by_value(labels: Labels, good: npt.NDArray[np.float64], joined: Joined, threshold: float) -> dict[str, Measured]:
    by_value: dict[str, Measured] = {}
    for number, value in enumerate(joined.values):
        here = [one for one in _ordered(labels) if one.within is None or one.value == text_of(value)]
        own = [_labelled(labels, good, joined, one, [threshold], number) for one in here]
        (by_value[text_of(value)],) = measured(own, [threshold])
    return by_value


def _labelled(
    labels: Labels,
    good: npt.NDArray[np.float64],
    joined: Joined,
    stratum: Stratum,
    thresholds: Sequence[float],
    number: int | None = None,
) -> LabelledStratum:
    """Collect the labels of a stratum. `number`, an index in `joined.values`, limits it to rows with that value."""
    here = np.array([one == stratum for one in labels.strata]) & ~np.isnan(good)
    if number is not None:
        here &= joined.numbers == number
    return LabelledStratum(
        rows=joined.count(stratum, number),
        rows_at_least=np.array([joined.count(stratum, number, at_least=one) for one in thresholds]),
        scores=joined.scores[here],
        is_good=good[here].astype(bool),
    )


def _asked(run: ScoredRun, column: str, question: Question) -> tuple[float | None, list[float]]:
    """Return the threshold to judge (None if there is none), and all thresholds to measure, ascending.

    If thresholds are equal as float32, only one of them is measured: the one to judge, if possible.
    """
    filtered = lowest_kept(run.spec.where, column)
    bins = _telling(score_bins(run.histograms[column])) if column in run.histograms else []
    asked = [*(one.start for one in bins), *([] if filtered is None else [filtered]), *question.at[::-1]]
    thresholds = sorted({float(np.float32(one)): one for one in asked}.values())
    return (question.at[0] if question.at else filtered), thresholds


def _check_unlike(labels: Labels, good: npt.NDArray[np.float64], positive: str) -> None:
    """Raise UsageError if all labels are good or none is."""
    if len(np.unique(good[~np.isnan(good)])) == 1:
        all_are = "All labels of {} are" if np.nansum(good) else "No label of {} is"
        raise UsageError(
            f"{all_are.format(labels.name)} good by {positive}, so they do not tell good rows from others. Say which are good "
            "with --positive, or label more rows: producer sample --more."
        )


def _telling(bins: list[Bin]) -> list[Bin]:
    """Leave out bins whose start, as a threshold, keeps almost all rows or almost none."""
    few = bins[0].at_least * _FEW if bins else 0.0
    return [one for one in bins if few < one.at_least < bins[0].at_least - few]


def _joined(run: RankedRun, labels: Labels, thresholds: Sequence[float]) -> Joined:
    """Count the run's rows by score, and find the scores of the sheet's rows. Reads all scores once.

    A row of the sheet gets the score NaN if it has no score in the run, is in a drop list, or has a null in the column of
    `--within`.
    """
    lows = {stratum.low for stratum in labels.strata}
    edges = np.unique(np.array([low for low in (*lows, *thresholds) if np.isfinite(low)], np.float32))
    values: Values = [] if run.ranking.within else [None]
    rows = np.zeros((0, len(edges) + 1), np.int64)
    scores, numbers = np.full(len(labels.rows), np.nan, np.float32), np.full(len(labels.rows), -1)
    wanted: dict[str, dict[int, int]] = defaultdict(dict)  # shard → row → index in the sheet
    for place, (shard, row) in enumerate(zip(labels.shards, labels.rows, strict=True)):
        wanted[shard][row] = place
    for receipt, indices, (keys, _) in run.read(values):
        own_scores, own_numbers = scores_of_keys(keys), keys >> 32
        rows = np.pad(rows, ((0, len(values) - len(rows)), (0, 0)))
        slots = own_numbers * rows.shape[1] + np.searchsorted(edges, own_scores, side="right")
        rows += np.bincount(slots, minlength=rows.size).reshape(rows.shape)
        named = wanted.get(receipt.shard, {})
        here = np.flatnonzero(np.isin(indices + receipt.first_row, list(named)))
        places = [named[row] for row in (indices[here] + receipt.first_row).tolist()]
        scores[places], numbers[places] = own_scores[here], own_numbers[here]
    return Joined(edges=edges, rows=rows, values=values, scores=scores, numbers=numbers)


def _check_drawn(labels: Labels, joined: Joined) -> None:
    """Raise UsageError if the rows of a sheet were not drawn from this run as it is now.

    Each row must have a score in its stratum. The strata must cover all scores, and the weights must fit the sizes of
    the strata.
    """
    if (missing := np.flatnonzero(np.isnan(joined.scores))).size:
        raise UsageError(
            f"Row {labels.rows[missing[0]]:,} of {labels.shards[missing[0]]}, which {labels.name} has, has no score in this run, "
            "so it was not drawn from it. Name the run that the rows were drawn from."
        )
    for place, stratum in enumerate(labels.strata):
        value = text_of(joined.values[joined.numbers[place]])
        if not stratum.has(float(joined.scores[place])) or (stratum.within is not None and stratum.value != value):
            raise UsageError(
                f"Row {labels.rows[place]:,} of {labels.shards[place]} has another score than when it was drawn: {labels.name} "
                "is of another run, or of another score column."
            )
    if not labels.is_weighted:
        return
    strata = _ordered(labels)
    if any(one.high > other.low and one.value == other.value for one, other in pairwise(strata)):
        raise UsageError(
            f"{labels.name} has rows that were drawn around different thresholds. Evaluate each sheet alone."
        )
    rows_of = {stratum: joined.count(stratum, None) for stratum in strata}
    if lacking := int(joined.rows.sum()) - sum(rows_of.values()):
        raise UsageError(
            f"{labels.name} has no row of the strata of {lacking:,} rows of this run. Leave all drawn rows in it: those without "
            "a label do no harm."
        )
    drawn_of = Counter(labels.strata)
    for stratum, weight in set(zip(labels.strata, labels.table[WEIGHT].to_pylist(), strict=True)):
        drawn = rows_of[stratum] / weight if weight > 0 else 0.0
        if abs(drawn - round(drawn)) > _OFF_BY or round(drawn) < drawn_of[stratum]:
            raise UsageError(
                f"{labels.name} has {counted(drawn_of[stratum], 'row')} of {stratum}, each with weight {weight:g}, but this "
                f"run has {rows_of[stratum]:,}: rows were added, weights were changed, or more shards were scored since."
            )
