"""The precision and recall of each threshold of a run, as a table and as JSON, and checks of requirements."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.manifest import scores_revision
from shardsift.producer.evidence.evidence import Evidence, LabelFile, model_and_scoring
from shardsift.producer.evidence.intervals import Measured, Part, Share, most_good_rows
from shardsift.producer.evidence.strata import Stratum
from shardsift.producer.planning.cut import RankedRun
from shardsift.producer.planning.options import Ranking
from shardsift.producer.scores.scored_run import NearRow, ScoredRun, near_lines, ranked_by

NO_THRESHOLD = "The filter of this run is not one threshold. Name the one to judge with --at."
_HEAD = ("kept", "precision", "recall", "F1", "good lost", "bad kept")
_ESTIMATED = "Brackets are 95 % intervals. Good lost and bad kept are estimated rows of the whole run."
_EXACT = "Alike is the share of rows that are both good and kept, or neither. All shares are exact."
_CHOICE = re.compile(r"(precision|recall)=(0?\.\d+|\d+(?:\.\d+)?%)")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of an evaluation.

    `at` has thresholds to measure; the first is the one to judge. `positive` is the condition for good labels, if the
    labels do not say which are good. `judge` is the model that gave the labels, if a model did. `disagreeing` is the
    number of rows to show on which two runs disagree most.
    """

    at: tuple[float, ...] = ()
    positive: str | None = None
    judge: str | None = None
    disagreeing: int = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A score column of a run, and what to measure: its `thresholds` and, at `threshold`, each value of `within`."""

    run: ScoredRun
    column: str
    question: Question
    threshold: float | None  # the one to judge, which is among `thresholds`; None if there is none
    thresholds: Sequence[float]  # ascending
    within: str | None  # a column of the input
    source: tuple[str, ...]  # the input, if the user named it

    def ranked(self, within: str | None, receipts: Sequence[Receipt] | None = None) -> RankedRun:
        """Prepare to rank the rows by the score, separately for each value of `within` if it is given.

        `receipts` limits this to the rows of some shards.
        """
        run = self.run if receipts is None else replace(self.run, receipts=receipts)
        return ranked_by(run, Ranking(score_columns=(self.column,), within=within), self.source)


@dataclass(frozen=True, kw_only=True)
class StratumLabels:
    stratum: Stratum
    rows: int
    labels: int
    good: int

    @property
    def part(self) -> Part:
        return Part(self.rows, self.labels, self.good)

    def as_json(self) -> dict[str, int | float | str | None]:
        value = {self.stratum.within: self.stratum.value} if self.stratum.within else {}
        limits = {"low": _finite(self.stratum.low), "high": _finite(self.stratum.high)}
        return {**limits, **value, "rows": self.rows, "labels": self.labels, "good": self.good}


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The part of a run that is not compared with the other run. `shards` is the number of shards left out whole.

    `rows` is the number of scored rows left out, including those of whole shards.
    """

    name: str
    shards: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Spearman's correlation of the scores of two runs, over all rows and for each value of `--within`."""

    run_id: str  # of the run whose scores are the labels
    spearman: float | None  # None if all rows of one run have the same score
    values: Mapping[str, float | None]
    left_out: tuple[LeftOut, ...]

    def lines(self) -> list[str]:
        return [
            f"spearman {_correlation(self.spearman)}",
            *(
                f"left out {counted(one.rows, 'row')} of {one.name}"
                + (f", {counted(one.shards, 'whole shard')} among them" if one.shards else "")
                for one in self.left_out
                if one.rows or one.shards
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class DisagreeingRow(NearRow):
    """A row that two runs rank differently. `label` is the other run's score. Ranks are shares of rows with lower scores."""

    label: float
    rank: float
    label_rank: float

    def lines(self) -> list[str]:
        _, text = near_lines([self])
        ranks = f"score {self.score:.3f} ({self.rank:.1%}), label {self.label:.3f} ({self.label_rank:.1%})"
        return [f"{ranks}  {self.shard} row {self.row:,}", text]


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Evidence):
    """The measured precision and recall of a run's thresholds, with 95 % intervals.

    `threshold` is the one to judge: the first of `--at`, otherwise the run's own.
    """

    name: str  # the run's id, or where it is published
    labelled_strata: tuple[StratumLabels, ...]  # `strata` as typed values
    agreement: Agreement | None = None  # set if the labels are another run's scores; then all shares are exact
    disagreeing: Sequence[DisagreeingRow] = ()  # the largest difference first
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        at = self.at_threshold
        figures = f"precision {at.precision}, recall {at.recall} at {at.threshold:g}" if at else "no threshold"
        by = f" by {self.judge}" if self.judge else ""
        return f"<Evaluation {self.name}: {figures}; {counted(self.labels.rows, 'label')}{by}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def at_threshold(self) -> Measured | None:
        return self.at(self.threshold)

    def lines(self) -> list[str]:
        labels, rows = self.labels, sum(one.rows for one in self.labelled_strata)
        lines = [
            f"evaluate {self.name}, {self.score_column}",
            f"labels   {labels.rows:,} of {labels.file}, {labels.good:,} good by {self.positive}",
            *([f"judge    {self.judge}: figures are agreement with this model"] if self.judge else []),
            f"rows     {rows:,} with {'both scores' if self.agreement else f'a score, in {len(self.strata):,} strata'}",
            *(self.agreement.lines() if self.agreement else ()),
            *([] if labels.weighted else ["         unweighted: as if each row had the same chance to be labelled"]),
            "",
            *_table([(self._shown(one), one) for one in self.thresholds], "score", self._alike(self.thresholds)),
            "",
            _EXACT if self.agreement else _ESTIMATED,
        ]
        if at := self.at_threshold:
            lines += [f"* {self.score_column} >= {at.threshold:g}. {self._limiting_line(at)}".rstrip()]
        if self.values:
            shown = [(value, one) for value, one in self.values.items()]
            more = self._alike(self.values.values())
            if self.agreement:
                more["spearman"] = [_correlation(self.agreement.values[value]) for value in self.values]
            lines += ["", *_table(shown, self.within or "", more), *self.notes]
        if self.disagreeing:
            lines += ["", "Largest differences in rank. In brackets: share of rows with a lower score."]
            lines += [line for row in self.disagreeing for line in row.lines()]
        return lines

    def chosen(self, wanted: str) -> Measured:
        """Return the lowest threshold that reaches a precision, or the highest that reaches a recall.

        `wanted` is like `precision=0.8`. The lower limit of the 95 % interval must reach this share. Raises UsageError if no
        threshold reaches it.
        """
        if reached := self.reaching(wanted):
            return reached[0]
        raise UsageError(self.none_reaches(wanted))

    def reaching(self, wanted: str) -> list[Measured]:
        """Return the thresholds that reach `wanted`, such as `precision=0.8`.

        For precision the lowest threshold comes first, for recall the highest.
        """
        name, least = _choice(wanted)
        reached = [one for one in self.thresholds if low_limit(one, name) >= least]
        return reached if name == "precision" else reached[::-1]

    def none_reaches(self, wanted: str) -> str:
        name, least = _choice(wanted)
        best = max((low_limit(one, name) for one in self.thresholds), default=0.0)
        return (
            f"No threshold has a {name} of {least:.1%} for certain: the highest lower limit is {best:.1%}. Label more rows "
            "(producer sample --more), or ask for less."
        )

    def unmet(self, *, min_precision: float | None, min_recall: float | None) -> list[str]:
        """Return a sentence for each required share that the lower limit of the 95 % interval does not reach.

        Raises UsageError if there are requirements and no threshold to judge.
        """
        wanted = [
            (name, one) for name, one in (("precision", min_precision), ("recall", min_recall)) if one is not None
        ]
        at = self.at_threshold
        if not wanted:
            return []
        if at is None:
            raise UsageError(NO_THRESHOLD)
        return [
            f"The {name} at {at.threshold:g} may be as low as {low_limit(at, name):.1%}, and --min-{name} is {least:.1%}."
            for name, least in wanted
            if low_limit(at, name) < least
        ]

    def as_json(self) -> dict[str, object]:
        shown = {"name": self.name, **asdict(self)}
        del shown["labelled_strata"], shown["notes"]
        thresholds, values = ([_as_json(one) for one in found] for found in (self.thresholds, self.values.values()))
        return shown | {"thresholds": thresholds, "values": dict(zip(self.values, values, strict=True))}

    def _shown(self, one: Measured) -> str:
        return f"{one.threshold:.6g}{'*' if one.threshold == self.threshold else ' '}"

    def _alike(self, measured: Iterable[Measured]) -> dict[str, list[str]]:
        return {"alike": [f"{one.alike:.1%}" for one in measured]} if self.agreement else {}

    def _limiting_line(self, at: Measured) -> str:
        """Say which stratum makes the recall most uncertain.

        It is the stratum below the threshold that may have the most good rows. Empty if all rows below the threshold are
        good, or if all rows are labelled.
        """
        lost = [one for one in self.labelled_strata if one.stratum.low < at.threshold and one.good < one.rows]
        if not lost or self.agreement:
            return ""
        most = {id(one): most_good_rows(one.part) for one in lost}
        limiting = max(lost, key=lambda one: most[id(one)])
        return (
            f"Recall is limited by {limiting.stratum}: {limiting.good:,} of {counted(limiting.labels, 'label')} are good, so up "
            f"to {most[id(limiting)]:,} of its {counted(limiting.rows, 'row')} may be."
        )


def evaluation_of(
    subject: Subject,
    *,
    positive: str,
    labels: LabelFile,
    strata: Sequence[StratumLabels],
    thresholds: Sequence[Measured],
    values: Mapping[str, Measured],
    agreement: Agreement | None = None,
    disagreeing: Sequence[DisagreeingRow] = (),
    notes: tuple[str, ...] = (),
) -> Evaluation:
    """Make an Evaluation from the figures. Adds the run, the model of its scores, and the judge of the labels.

    Sorts `values` by the lower limit of the precision, the lowest first.
    """
    run, column = subject.run, subject.column
    model, scoring = model_and_scoring(run.spec, column)
    return Evaluation(
        name=run.name,
        run_id=run.receipts[0].run_id,
        scores_revision=scores_revision(run.receipts),
        score_column=column,
        model=model,
        scoring=scoring,
        threshold=subject.threshold,
        positive=positive,
        judge=subject.question.judge,
        labels=labels,
        strata=tuple(one.as_json() for one in strata),
        labelled_strata=tuple(strata),
        thresholds=tuple(thresholds),
        within=subject.within,
        values=dict(sorted(values.items(), key=lambda item: low_limit(item[1], "precision"))),
        agreement=agreement,
        disagreeing=disagreeing,
        notes=notes,
    )


def label_file(strata: Sequence[StratumLabels], *, file: str, sha256: str, weighted: bool = True) -> LabelFile:
    rows, good = sum(one.labels for one in strata), sum(one.good for one in strata)
    return LabelFile(file=file, sha256=sha256, rows=rows, good=good, weighted=weighted)


def low_limit(one: Measured, name: str) -> float:
    """Return the lower limit of a 95 % interval. `name` is `precision` or `recall`. For precision, it is 0 if no row is kept."""
    share = one.precision if name == "precision" else one.recall
    return share.low if share else 0.0


def _choice(wanted: str) -> tuple[str, float]:
    found = _CHOICE.fullmatch(wanted)
    if not found or _share_in(found[2]) > 1:
        raise UsageError(f"--choose takes precision=SHARE or recall=SHARE, like precision=0.8, not {wanted!r}.")
    return found[1], _share_in(found[2])


def _share_in(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _table(rows: Sequence[tuple[str, Measured]], head: str, more: Mapping[str, Sequence[str]]) -> list[str]:
    cells = [
        (
            name,
            f"{one.rows_kept / max(1, one.rows):.1%}",
            _interval(one.precision),
            _interval(one.recall),
            f"{one.f1:.2f}",
            f"{one.good_lost:,}",
            f"{one.bad_kept:,}",
            *(column[index] for column in more.values()),
        )
        for index, (name, one) in enumerate(rows)
    ]
    table = [(head, *_HEAD, *more), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in table]


def _interval(share: Share | None) -> str:
    if share is None:
        return "-"
    limits = f" [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share.low < share.high else ""
    return f"{share.value:.1%}{limits}"


def _correlation(found: float | None) -> str:
    return "-" if found is None else f"{found:.3f}"


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


def _as_json(one: Measured) -> dict[str, Any]:
    return {**asdict(one), "f1": one.f1, "alike": one.alike}
