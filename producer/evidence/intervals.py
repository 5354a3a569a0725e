"""Estimate precision and recall from labels of a stratified sample, with 95 % intervals. Knows no files and no runs.

The share of good rows in a stratum has Jeffreys' posterior: a beta distribution whose parameters are the number of good
labels plus 1/2 and the number of bad labels plus 1/2. If no label of a stratum is good, the lower limit is set to 0; if
all are good, the upper limit is set to 1. Otherwise many strata without good labels would add up to good rows that do
not exist. See Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", Statistical Science 16 (2001),
2.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_DRAWS = 10_000
_LIMITS = (0.025, 0.975)

Floats = npt.NDArray[np.float64]


class Part(NamedTuple):
    """A part of a stratum: the numbers of its rows, of those that are labelled, and of labelled rows that are good.

    `unlabelled_share` is the share of good rows to assume if no row is labelled.
    """

    rows: int
    labels: int
    good: int
    unlabelled_share: float = 0.5

    @property
    def estimate(self) -> float:
        return self.rows * self.good / self.labels if self.labels else self.rows * self.unlabelled_share


_NOTHING = Part(0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class LabelledStratum:
    """The labels of rows that were drawn uniformly from a stratum of `rows` rows.

    `rows_at_least` is the number of the stratum's rows at or above each threshold.
    """

    rows: int
    rows_at_least: npt.NDArray[np.int64]  # shape (thresholds,)
    scores: npt.NDArray[np.float32]  # shape (labels,)
    is_good: npt.NDArray[np.bool_]  # shape (labels,)

    @cached_property
    def all(self) -> Part:
        return Part(self.rows, len(self.is_good), int(np.count_nonzero(self.is_good)))

    def divided(self, index: int, threshold: float) -> tuple[Part, Part]:
        rows = int(self.rows_at_least[index])
        if rows in (0, self.rows):
            return (self.all, _NOTHING) if rows else (_NOTHING, self.all)
        is_above = self.scores >= np.float32(threshold)
        good = int(np.count_nonzero(self.is_good & is_above))
        labels = int(np.count_nonzero(is_above))
        share = self.all.estimate / self.rows
        below = Part(self.rows - rows, self.all.labels - labels, self.all.good - good, share)
        return Part(rows, labels, good, share), below


@dataclass(frozen=True, kw_only=True)
class Share:
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1%}" + (f" ({self.low:.1%} to {self.high:.1%})" if self.low < self.high else "")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The quality of a filter that keeps the rows with a score of `threshold` or more.

    `good_lost` and `bad_kept` are estimated numbers of rows. `precision` is None if no row is kept.
    """

    threshold: float
    rows: int
    rows_kept: int
    precision: Share | None
    recall: Share
    good_lost: int
    bad_kept: int

    @property
    def f1(self) -> float:
        precision = self.precision.value if self.precision else 0.0
        return 2 * precision * self.recall.value / ((precision + self.recall.value) or 1.0)

    @property
    def alike(self) -> float:
        """The share of rows that are both good and kept, or neither."""
        return 1 - (self.good_lost + self.bad_kept) / (self.rows or 1)


def measured(strata: Sequence[LabelledStratum], thresholds: Sequence[float]) -> list[Measured]:
    """Measure each threshold. The intervals come from random draws with fixed seeds, so equal labels give equal figures."""
    divided = ([stratum.divided(index, at) for stratum in strata] for index, at in enumerate(thresholds))
    return measured_parts(divided, thresholds)


def measured_parts(divided: Iterable[Sequence[tuple[Part, Part]]], thresholds: Sequence[float]) -> list[Measured]:
    """Measure each threshold from the parts of all strata.

    For each threshold, `divided` has two parts of each stratum: the rows at or above the threshold, and those below it.
    """
    drawn: dict[tuple[int, Part], tuple[Floats, Floats]] = {}
    nothing = (np.zeros(_DRAWS), np.zeros(_DRAWS))

    def summed(parts: Sequence[Part]) -> tuple[int, float, Floats, Floats]:
        for stratum, part in enumerate(parts):
            if (stratum, part) not in drawn:
                drawn[stratum, part] = _limits_of_good_rows(part, seed=stratum) if part.rows else nothing
        low, high = (sum((drawn[key][side] for key in enumerate(parts)), nothing[0]) for side in (0, 1))
        return sum(part.rows for part in parts), sum(part.estimate for part in parts), low, high

    found = []
    for threshold, parts in zip(thresholds, divided, strict=True):
        rows_kept, kept, kept_low, kept_high = summed([above for above, _ in parts])
        rows_lost, lost, lost_low, lost_high = summed([below for _, below in parts])
        recall = _share_of(kept_low, lost_high, without_rows=0), _share_of(kept_high, lost_low, without_rows=1)
        found.append(
            Measured(
                threshold=threshold,
                rows=rows_kept + rows_lost,
                rows_kept=rows_kept,
                precision=_share(kept / rows_kept, kept_low / rows_kept, kept_high / rows_kept) if rows_kept else None,
                recall=_share(kept / ((kept + lost) or 1), *recall),
                good_lost=round(lost),
                bad_kept=round(rows_kept - kept),
            )
        )
    return found


def share_of_good(part: Part) -> Share:
    low, high = _limits_of_good_rows(part, seed=0)
    return _share(part.estimate / part.rows, low / part.rows, high / part.rows)


def most_good_rows(part: Part) -> int:
    """Return the upper limit of the 95 % interval of a part's number of good rows."""
    return round(float(np.quantile(_limits_of_good_rows(part, seed=0)[1], _LIMITS[1])))


def _limits_of_good_rows(part: Part, *, seed: int) -> tuple[Floats, Floats]:
    """Draw possible numbers of good rows of a part: _DRAWS for the lower limit, and as many for the upper limit.

    Only the number of good rows without a label is random.
    """
    random = np.random.default_rng([seed, part.rows, part.labels, part.good])
    shares = random.beta(part.good + 0.5, part.labels - part.good + 0.5, _DRAWS)
    unknown = part.rows - part.labels
    low = random.binomial(unknown, shares if part.good else np.zeros(_DRAWS))
    high = random.binomial(unknown, shares if part.good < part.labels else np.ones(_DRAWS))
    return (part.good + low).astype(np.float64), (part.good + high).astype(np.float64)


def _share_of(part: Floats, other: Floats, *, without_rows: float) -> Floats:
    both = part + other
    return np.where(both > 0, part / np.maximum(both, 1), without_rows)


def _share(value: float, low: Floats, high: Floats) -> Share:
    """Make a share with the estimate `value`, and the interval's limits from the draws `low` and `high`.

    Widens the interval to include `value`, which may lie outside if a part has no label.
    """
    limits = float(np.quantile(low, _LIMITS[0])), float(np.quantile(high, _LIMITS[1]))
    return Share(value=value, low=min(limits[0], value), high=max(limits[1], value))
