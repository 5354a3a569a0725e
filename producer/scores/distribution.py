"""How the scores of one scoring are spread: rows by score, in steps of a fixed width, and by label."""

import importlib.util
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleet.errors import UsageError
from fleet.process.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_MOST_THRESHOLDS = 12
_THRESHOLD = re.compile(r'\s*"?(?P<column>\w+)"?\s*>=?\s*(?P<value>-?\d+(\.\d+)?)\s*')  # what --min-score writes


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


def threshold_of(where: str | None, column: str) -> float | None:
    """The threshold of a filter that compares this column with a number and does nothing else."""
    found = _THRESHOLD.fullmatch(where or "")
    return float(found["value"]) if found and found["column"] == column else None


def _widths(finest: float) -> Iterable[float]:
    """1, 2, 5, 10, 20, … times powers of ten, from the finest step on. Quarters are kept: 0.25, 0.5, 1."""
    base = (1, 2, 4) if finest in (0.25, 0.05) else (1, 2, 5)
    power = 0
    while True:
        for number in base:
            yield round(number * finest * 10**power, 9)
        power += 1


# The distributions of a run's scores as text and as JSON, with what the run's own filter keeps.

_BAR = 40  # characters
_MOST_LABELS = 20


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """`shards_done` of `shards` are in it. `where` is the run's filter, which has kept `rows_kept`."""

    name: str  # the run's id, or where it is published
    shards: int
    shards_done: int
    rows: int
    errors: dict[str, int]  # reason → rows
    where: str | None
    rows_kept: int
    distributions: tuple[Distribution, ...]

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"distributions": [_as_json(one) for one in self.distributions]}

    def lines(self) -> list[str]:
        return [
            f"scores   {self.name}",
            f"shards   {self.shards_done:,} of {self.shards:,}",
            f"rows     {self.rows:,} in{_errored(self.errors)}",
            f"kept     {self.rows_kept:,} ({_share(self.rows_kept, self.rows)}) by {self.where or '--keep-all'}",
            *(line for one in self.distributions for line in ["", *_lines_of(one)]),
        ]


def _as_json(one: Distribution) -> dict[str, object]:
    return asdict(one) | {
        "quantiles": {str(share): one.quantile(share) for share in QUANTILES} if one.rows else {},
        "keep_rates": [
            {"threshold": threshold, "rows": one.at_least(threshold), "share": one.at_least(threshold) / one.rows}
            for threshold in one.thresholds()
        ],
    }


def _errored(errors: dict[str, int]) -> str:
    told = ", ".join(f"{rows:,} {reason}" for reason, rows in errors.items())
    return f", {told} (errored)" if told else ""


def _share(rows: int, of: int) -> str:
    return f"{rows / of:.2%}" if of else "0 %"


def _lines_of(one: Distribution) -> Iterator[str]:
    yield f"{one.column}: {counted(one.rows, 'row')} with a score"
    if not one.rows:
        return
    yield "  " + ", ".join(f"{_named(share)} {one.quantile(share):g}" for share in QUANTILES)
    yield ""
    yield from _bars(one)
    yield ""
    yield "  threshold         rows at or above"
    for threshold in one.thresholds():
        rows = one.at_least(threshold)
        yield f"  >= {threshold:<6g}  {rows:>15,}  {_share(rows, one.rows):>8}{_rounded(one, threshold)}"
    yield from _labels(one)


def _named(share: float) -> str:
    return {0.0: "lowest", 0.5: "median", 1.0: "highest"}.get(share, f"{share:.0%}")


def _bars(one: Distribution) -> Iterator[str]:
    bins = one.histogram(one.bin_width())
    most = max(bins.values())
    for edge, rows in bins.items():
        yield f"  {edge:>8g}  {'█' * round(_BAR * rows / most):<{_BAR}}  {rows:,}"


def _rounded(one: Distribution, threshold: float) -> str:
    """A filter on the score and one on FineWeb-Edu's rounded score keep different rows: 2.6 is rounded to 3."""
    if not one.int_scores or threshold != int(threshold):
        return ""
    rows = sum(rows for score, rows in one.int_scores.items() if score >= threshold)
    return f"    int_{one.column} >= {threshold:g} keeps {rows:,}: it is the score rounded, half to even"


def _labels(one: Distribution) -> Iterator[str]:
    if not one.labels:
        return
    yield ""
    width = max(map(len, one.labels))
    for label, rows in list(one.labels.items())[:_MOST_LABELS]:
        yield f"  {label:<{width}}  {rows:>15,}  {_share(rows, one.rows):>8}"
    if len(one.labels) > _MOST_LABELS:
        yield f"  and {len(one.labels) - _MOST_LABELS:,} more labels; --json has all"


# Draw the histogram and the keep rate by threshold as a PNG. Only this module of the producer knows matplotlib.


def check_chart(file: Path) -> None:
    """Check before anything is read that the chart can be drawn and written. Raises UsageError."""
    if not importlib.util.find_spec("matplotlib"):
        raise UsageError("Drawing the chart needs matplotlib. Install it with: pip install 'shardsift[tune]'.")
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise UsageError(f"Cannot write the chart to {file}. Name a file in a writable folder with --png.")


def draw_chart(file: Path, distributions: Sequence[Distribution], *, title: str) -> None:
    """Write the chart as a PNG."""
    chart(distributions, title=title).savefig(file, format="png", dpi=150)


def chart(distributions: Sequence[Distribution], *, title: str) -> "Figure":
    """A column for each distribution that has a row: rows by score above, the keep rate below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [one for one in distributions if one.rows]
    figure = Figure(figsize=(6.4 * max(1, len(drawn)), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    if drawn:
        panels = figure.subplots(2, len(drawn), squeeze=False, sharex="col")
        for one, (rows, rate) in zip(drawn, panels.T, strict=True):
            width = one.bin_width()
            bins = one.histogram(width)
            rows.bar(list(bins), list(bins.values()), width=width, align="edge", edgecolor="white")
            _draw_keep_rate(rate, one, first=min(bins), last=round(max(bins) + width, 6))
        panels[0][0].set_ylabel("rows")
        panels[1][0].set_ylabel("rows at or above, %")
    return figure


def _draw_keep_rate(axes: "Axes", one: Distribution, *, first: float, last: float) -> None:
    """Steps, not a line from point to point: within a step of the distribution the rate is not known."""
    rates = {first: 1.0} | one.keep_rates() | {last: 0.0}
    axes.step(list(rates), [100 * rate for rate in rates.values()], where="post", color="tab:orange")
    axes.set_xlabel(one.column)
    axes.set_ylim(0, 105)
    axes.grid(visible=True)
