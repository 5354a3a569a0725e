"""The precision and recall of each threshold of a run, as a table and as JSON, and checks of requirements."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import counted
from shardsift.producer.evidence.intervals import Measured, Part, Share, most_good_rows
from shardsift.producer.evidence.strata import Stratum

_HEAD = ("kept", "precision", "recall", "F1", "good lost", "bad kept")
_CHOICE = re.compile(r"(precision|recall)=(0?\.\d+|\d+(?:\.\d+)?%)")


@dataclass(frozen=True, kw_only=True)
class StratumLabels:
    """A stratum with its number of rows in the run, and how many of them are labelled and good."""

    stratum: Stratum
    rows: int
    labels: int
    good: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """Precision and recall of each threshold of a run, with 95 % intervals. `judge` is a model that gave the labels."""

    name: str  # the run's id, or where it is published
    run_id: str
    score_column: str
    threshold: float | None  # the one to judge: the first of `--at`, or the run's own
    positive: str  # the condition on `label` that makes a row good
    judge: str | None
    labels_file: str
    labels_sha256: str
    is_weighted: bool
    strata: tuple[StratumLabels, ...]
    thresholds: tuple[Measured, ...]
    within: str | None = None
    values: Mapping[str, Measured]  # figures at `threshold` by value of `within`, lowest precision first

    def __repr__(self) -> str:
        at = self.at_threshold
        figures = f"precision {at.precision}, recall {at.recall} at {at.threshold:g}" if at else "no threshold"
        return f"<Evaluation {self.name}: {figures}; {counted(self.labels, 'label')}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def labels(self) -> int:
        return sum(one.labels for one in self.strata)

    @property
    def good(self) -> int:
        return sum(one.good for one in self.strata)

    @property
    def at_threshold(self) -> Measured | None:
        return next((one for one in self.thresholds if one.threshold == self.threshold), None)

    def lines(self) -> list[str]:
        rows = sum(one.rows for one in self.strata)
        lines = [
            f"evaluate {self.name}, {self.score_column}",
            f"labels   {self.labels:,} of {self.labels_file}, {self.good:,} good by {self.positive}",
            *([f"judge    {self.judge}: figures are agreement with this model"] if self.judge else []),
            f"rows     {rows:,} with a score, in {len(self.strata):,} strata",
            *([] if self.is_weighted else ["         unweighted: as if each row had the same chance to be labelled"]),
            "",
            *_table([(self._shown(one), one) for one in self.thresholds], "score"),
            "",
            "Brackets are 95 % intervals. Good lost and bad kept are estimated rows of the whole run.",
        ]
        if at := self.at_threshold:
            lines += [f"* {self.score_column} >= {at.threshold:g}. {self._limiting_line(at)}".rstrip()]
        if self.values:
            shown = [(value, one) for value, one in self.values.items()]
            lines += ["", *_table(shown, self.within or "")]
        return lines

    def chosen(self, wanted: str) -> Measured:
        """Find the lowest threshold whose precision is at least a share for certain, as in `precision=0.8`.

        For recall, find the highest one. "For certain" means the lower limit. Raises UsageError if there is none.
        """
        found = _CHOICE.fullmatch(wanted)
        if not found:
            raise UsageError(f"--choose takes precision=SHARE or recall=SHARE, like precision=0.8, not {wanted!r}.")
        name, least = found[1], _share_in(found[2])
        reached = [one for one in self.thresholds if low_limit(one, name) >= least]
        if not reached:
            best = max((low_limit(one, name) for one in self.thresholds), default=0.0)
            raise UsageError(
                f"No threshold has a {name} of {least:.1%} for certain: the highest lower limit is {best:.1%}. Label more "
                "rows (producer sample --more), or ask for less."
            )
        return reached[0] if name == "precision" else reached[-1]

    def unmet(self, *, min_precision: float | None, min_recall: float | None) -> list[str]:
        """Return a sentence for each requirement that the lower limit at the threshold does not meet."""
        wanted = [
            (name, one) for name, one in (("precision", min_precision), ("recall", min_recall)) if one is not None
        ]
        at = self.at_threshold
        if not wanted:
            return []
        if at is None:
            raise UsageError("The filter of this run is not one threshold. Name the one to judge with --at.")
        return [
            f"The {name} at {at.threshold:g} may be as low as {low_limit(at, name):.1%}, and --min-{name} is {least:.1%}."
            for name, least in wanted
            if low_limit(at, name) < least
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "run_id": self.run_id,
            "score_column": self.score_column,
            "threshold": self.threshold,
            "positive": self.positive,
            "judge": self.judge,
            "labels": {
                "file": self.labels_file,
                "sha256": self.labels_sha256,
                "rows": self.labels,
                "good": self.good,
                "weighted": self.is_weighted,
            },
            "strata": [
                {
                    "low": _finite(one.stratum.low),
                    "high": _finite(one.stratum.high),
                    **({one.stratum.within: one.stratum.value} if one.stratum.within else {}),
                    "rows": one.rows,
                    "labels": one.labels,
                    "good": one.good,
                }
                for one in self.strata
            ],
            "thresholds": [_as_json(one) for one in self.thresholds],
            "within": self.within,
            "values": {value: _as_json(one) for value, one in self.values.items()},
        }

    def _shown(self, one: Measured) -> str:
        return f"{one.threshold:.6g}{'*' if one.threshold == self.threshold else ' '}"

    def _limiting_line(self, at: Measured) -> str:
        """Name the stratum below the threshold that makes the recall most uncertain."""
        lost = [one for one in self.strata if one.stratum.low < at.threshold and one.good < one.rows]
        if not lost:
            return ""
        most = {id(one): most_good_rows(Part(one.rows, one.labels, one.good)) for one in lost}
        limiting = max(lost, key=lambda one: most[id(one)])
        return (
            f"Recall is limited by {limiting.stratum}: {limiting.good:,} of {counted(limiting.labels, 'label')} are good, so up "
            f"to {most[id(limiting)]:,} of its {counted(limiting.rows, 'row')} may be."
        )


def low_limit(one: Measured, name: str) -> float:
    """Return the lower limit of precision or recall. 0 for the precision if no row is kept."""
    share = one.precision if name == "precision" else one.recall
    return share.low if share else 0.0


def _share_in(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _table(rows: Sequence[tuple[str, Measured]], head: str) -> list[str]:
    cells = [
        (
            name,
            f"{one.rows_kept / max(1, one.rows):.1%}",
            _interval(one.precision),
            _interval(one.recall),
            f"{one.f1:.2f}",
            f"{one.good_lost:,}",
            f"{one.bad_kept:,}",
        )
        for name, one in rows
    ]
    table = [(head, *_HEAD), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in table]


def _interval(share: Share | None) -> str:
    return f"{share.value:.1%} [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share else "-"


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


def _as_json(one: Measured) -> dict[str, Any]:
    return {**asdict(one), "f1": one.f1}
