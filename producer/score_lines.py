"""What a run keeps so far, and how its scores are spread, in two lines of text."""

import math
import re
from collections.abc import Iterator

from fleet.histogram import Histogram

_THRESHOLD = re.compile(r'\s*"?(?P<column>\w+)"?\s*>=?\s*(?P<value>-?\d+(\.\d+)?)\s*')  # what --min-score writes
_NEIGHBOUR_UNITS = 0.5  # of logits, which are spread over several units
_NEIGHBOUR_SHARE = 0.1  # of probabilities
_BARS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 40


def kept_at(histogram: Histogram, threshold: float) -> float:
    """The share of the scored rows with this score or more. Exact if the threshold lies between two bins."""
    least = math.ceil(round(threshold * histogram.bins_per_unit, 6))
    return sum(rows for number, rows in histogram.rows_by_bin.items() if number >= least) / histogram.rows


def neighbours(where: str | None, histograms: dict[str, Histogram]) -> Iterator[tuple[float, float]]:
    """The thresholds beside the run's, with the share of rows that each would keep. None if the filter is no threshold."""
    for column, histogram in histograms.items():
        threshold = threshold_of(where, column)
        if threshold is None or not histogram.rows:
            continue
        step = _NEIGHBOUR_UNITS if histogram.bins_per_unit < 1 / _NEIGHBOUR_SHARE else _NEIGHBOUR_SHARE
        for beside in (threshold - step, threshold + step):
            yield beside, kept_at(histogram, beside)


def threshold_of(where: str | None, column: str) -> float | None:
    """The threshold of a filter that compares this column with a number and does nothing else."""
    found = _THRESHOLD.fullmatch(where or "")
    return float(found["value"]) if found and found["column"] == column else None


def kept_line(rows_kept: int, rows: int, where: str | None, histograms: dict[str, Histogram]) -> str:
    """For example `6.2% so far (by threshold: 12.0% at 2.5, 2.1% at 3.5)`."""
    beside = ", ".join(f"{_percent(share)} at {threshold:g}" for threshold, share in neighbours(where, histograms))
    return f"{_percent(rows_kept / rows)} so far{f' (by threshold: {beside})' if beside else ''}"


def spread_line(histogram: Histogram) -> str:
    """For example `0.25 ▂▄█▇▅▃▁ 4.5`: the lowest and the highest bin, and a bar for each between them."""
    first, last = min(histogram.rows_by_bin), max(histogram.rows_by_bin)
    wide = -(-(last - first + 1) // _MOST_BARS)
    rows = [
        sum(histogram.rows_by_bin.get(number, 0) for number in range(start, start + wide))
        for start in range(first, last + 1, wide)
    ]
    bars = "".join(_BARS[math.ceil(count * (len(_BARS) - 1) / max(rows))] for count in rows)
    unit = histogram.bins_per_unit
    return f"{first / unit:g} {bars} {(last + 1) / unit:g}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.01 else f"{share:.1%}"
