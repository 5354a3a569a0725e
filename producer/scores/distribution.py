"""How the scores of one scoring are spread: rows by score, in steps of a fixed width, and by label."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_MOST_THRESHOLDS = 12


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """`rows_by_step[i]` rows have a score of at least `i / steps_per_unit` and less than `(i + 1) / steps_per_unit`.

    `labels` counts the rows by their best label, `int_scores` by FineWeb-Edu's rounded score; both are empty if the scoring has
    none. Rows without a score are not counted.
    """

    column: str
    steps_per_unit: int
    rows_by_step: dict[int, int]
    labels: dict[str, int] = field(default_factory=dict)
    int_scores: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.rows_by_step.values())

    def at_least(self, threshold: float) -> int:
        """The rows with this score or more. Exact if the threshold is a multiple of a step."""
        least = math.ceil(round(threshold * self.steps_per_unit, 6))
        return sum(rows for step, rows in self.rows_by_step.items() if step >= least)

    def keep_rates(self) -> dict[float, float]:
        """The share of the rows with this score or more, at all scores where it is exact and may differ from the one before."""
        edges = sorted({edge for step in self.rows_by_step for edge in (step, step + 1)})
        fewer = accumulate((self.rows_by_step.get(edge, 0) for edge in edges), initial=0)
        return {
            edge / self.steps_per_unit: (self.rows - below) / self.rows
            for edge, below in zip(edges, fewer, strict=False)
        }

    def quantile(self, share: float) -> float:
        """The score below which about this share of the rows lies, rounded down to a step. Raises ValueError without rows."""
        if not self.rows_by_step:
            raise ValueError("There is no score.")
        steps = np.array(sorted(self.rows_by_step))
        until = np.cumsum([self.rows_by_step[int(step)] for step in steps])
        place = int(np.searchsorted(until, max(1.0, share * self.rows)))
        return float(steps[min(place, len(steps) - 1)]) / self.steps_per_unit

    def thresholds(self) -> list[float]:
        """Round numbers between the lowest and the highest percentile, about a dozen."""
        if not self.rows_by_step:
            return []
        low, high = self.quantile(0.01), self.quantile(0.99)
        finest = 1 / self.steps_per_unit
        wide = next(step for step in _widths(finest) if (high - low) / step <= _MOST_THRESHOLDS)
        first, last = math.floor(low / wide), math.ceil(high / wide)
        return [round(number * wide, 6) for number in range(first, last + 1)]

    def histogram(self, width: float) -> dict[float, int]:
        """Rows by score, in bins of this width, which is a multiple of a step. Bins between others are there with 0."""
        bins: Counter[int] = Counter()
        for step, rows in self.rows_by_step.items():
            bins[math.floor(round(step / (width * self.steps_per_unit), 6))] += rows
        return {round(number * width, 6): bins[number] for number in range(min(bins), max(bins) + 1)} if bins else {}

    def bin_width(self) -> float:
        """The width of about two dozen bins."""
        span = self.quantile(0.999) - self.quantile(0.001) if self.rows_by_step else 0.0
        return next(step for step in _widths(1 / self.steps_per_unit) if span / step <= 2 * _MOST_THRESHOLDS)


def added(distributions: Iterable[Distribution]) -> Distribution:
    """One distribution of all rows. There is at least one, and all are of one column."""
    first, *others = distributions
    steps, labels, rounded = Counter(first.rows_by_step), Counter(first.labels), Counter(first.int_scores)
    for other in others:
        steps.update(other.rows_by_step)
        labels.update(other.labels)
        rounded.update(other.int_scores)
    return Distribution(
        column=first.column,
        steps_per_unit=first.steps_per_unit,
        rows_by_step=dict(sorted(steps.items())),
        labels=dict(labels.most_common()),
        int_scores=dict(sorted(rounded.items())),
    )


def _widths(finest: float) -> Iterable[float]:
    """1, 2, 5, 10, 20, … times powers of ten, from the finest step on. Quarters are kept: 0.25, 0.5, 1."""
    base = (1, 2, 4) if finest in (0.25, 0.05) else (1, 2, 5)
    power = 0
    while True:
        for number in base:
            yield round(number * finest * 10**power, 9)
        power += 1
