"""Show how scores are spread: as a table, as bins for a page, and as a picture. The numbers come from receipts."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Histogram, Receipt, added
from shardsift.fleet.run.spec import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BINS = 24
_MOST_IN_PICTURE = 2  # columns
_BAR = 32  # characters of the longest bar
_HEAD = ("from", "rows", "share", "this or more")
_THRESHOLD = re.compile(
    r'\s*"?(?P<column>\w+)"?\s*>=?\s*(?P<value>-?(\d+\.?\d*|\.\d+)(e-?\d+)?)\s*', re.IGNORECASE
)  # as --min-score writes


@dataclass(frozen=True, kw_only=True)
class Bin:
    """A range of scores. `rows` have a score from `start` to below `end`; `at_least` rows have a score of `start` or more."""

    start: float
    end: float
    rows: int
    at_least: int


def histograms_of(spec: RunSpec, receipts: Sequence[Receipt]) -> dict[str, Histogram]:
    """Add up the histograms of each score column. `receipts` must not be empty.

    A model with several labels has a histogram for each label's score, and one for the highest score if the filter names
    it. The columns that the filter names come first.
    """
    found: dict[str, Histogram] = {}
    for index, scoring in enumerate(spec.scorings):
        columns = scoring.label_histogram_columns
        has_labels = columns and all(receipt.scorings[index].label_histograms for receipt in receipts)
        if not has_labels or spec.filter_names(scoring.score_column):
            found[scoring.score_column] = added(receipt.scorings[index].histogram for receipt in receipts)
        for label, column in enumerate(columns if has_labels else ()):
            found[column] = added(receipt.scorings[index].label_histograms[label] for receipt in receipts)
    return dict(sorted(found.items(), key=lambda one: not spec.filter_names(one[0])))


def score_bins(histogram: Histogram, *, most: int = _MOST_BINS) -> list[Bin]:
    """Return at most `most` bins of equal width, from the lowest score to the highest. Empty if no row has a score."""
    if not histogram.rows:
        return []
    first, last = min(histogram.rows_by_bin), max(histogram.rows_by_bin)
    wide = 1
    while last // wide - first // wide >= most:
        wide *= 2
    rows = dict.fromkeys(range(first // wide, last // wide + 1), 0)
    for number, count in histogram.rows_by_bin.items():
        rows[number // wide] += count
    bins, left, unit = [], histogram.rows, histogram.bins_per_unit
    for number, count in rows.items():
        bins.append(Bin(start=number * wide / unit, end=(number + 1) * wide / unit, rows=count, at_least=left))
        left -= count
    return bins


def score_tables(histograms: Mapping[str, Histogram]) -> Iterator[str]:
    for column, histogram in histograms.items():
        yield from ("", f"{column}: {counted(histogram.rows, 'row')} with a score")
        yield from (f"  {line}" for line in score_table(histogram).splitlines())


def score_table(histogram: Histogram) -> str:
    """Draw a table with a line for each bin: its rows, and the share of rows with this score or more.

    Empty if no row has a score.
    """
    bins = score_bins(histogram)
    if not bins:
        return ""
    all_rows, most = histogram.rows, max(one.rows for one in bins)
    cells = [
        (f"{one.start:.2f}", f"{one.rows:,}", f"{one.rows / all_rows:.1%}", f"{one.at_least / all_rows:.1%}")
        for one in bins
    ]
    widths = [max(map(len, column)) for column in zip(_HEAD, *cells, strict=True)]
    bars = ["", *("█" * round(_BAR * one.rows / most) for one in bins)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in (_HEAD, *cells)]
    return "\n".join(f"{line}  {bar}".rstrip() for line, bar in zip(lines, bars, strict=True))


def filter_threshold(where: str | None, column: str) -> float | None:
    """Return the threshold if the filter only compares this column with a number, by `>` or `>=`. Otherwise None."""
    found = _THRESHOLD.fullmatch(where or "")
    return float(found["value"]) if found and found["column"].lower() == column.lower() else None


def lowest_kept(where: str | None, column: str) -> float | None:
    """Return the lowest score that the filter keeps. None unless it only compares this column with a threshold.

    For a filter with `>`, this is the next float32 above the threshold.
    """
    threshold = filter_threshold(where, column)
    if threshold is None or ">=" in (where or ""):
        return threshold
    import numpy as np  # here, because `producer status` does not need it

    return float(np.nextafter(np.float32(threshold), np.float32(np.inf)))


def threshold_column(spec: RunSpec) -> str:
    """Return the score column that the filter compares with a threshold, otherwise the first of `spec.charted`."""
    found = (column for column in spec.scoring_of if filter_threshold(spec.where, column) is not None)
    return next(found, next(iter(spec.charted)))


def score_picture(spec: RunSpec, receipts: Sequence[Receipt]) -> bytes | None:
    """Draw the scores as a PNG for the card. None if no row has a score, or if matplotlib is not installed.

    Equal scores give equal bytes. Shows at most two columns; those that the filter names come first.
    """
    found = {column: histogram for column, histogram in histograms_of(spec, receipts).items() if histogram.rows}
    chosen = list(found)[:_MOST_IN_PICTURE]
    if not chosen:
        return None
    try:
        figure = chart({column: found[column] for column in chosen}, title="Scores", where=spec.where)
    except ImportError:
        return None
    return png_of(figure)


def png_of(figure: "Figure") -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})  # without matplotlib's version
    return picture.getvalue()


def chart(histograms: Mapping[str, Histogram], *, title: str, where: str | None) -> "Figure":
    """Draw two plots for each histogram that has rows: rows by score, and below it the share with that score or more.

    A vertical line marks the threshold, if the filter `where` only compares that column with a number.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = {name: histogram for name, histogram in histograms.items() if histogram.rows}
    figure = Figure(figsize=(6.4 * max(1, len(shown)), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    if not shown:
        return figure
    panels = figure.subplots(2, len(shown), squeeze=False, sharex="col")
    for (name, histogram), (rows, rate) in zip(shown.items(), panels.T, strict=True):
        bins = score_bins(histogram)
        starts = [one.start for one in bins]
        rows.bar(starts, [one.rows for one in bins], width=bins[0].end - bins[0].start, align="edge", edgecolor="white")
        rows.yaxis.set_major_formatter("{x:,.9g}")
        rate.plot(starts, [100 * one.at_least / histogram.rows for one in bins], marker=".", color="tab:orange")
        if (threshold := filter_threshold(where, name)) is not None:
            rows.axvline(threshold, color="tab:green")
            rate.axvline(threshold, color="tab:green", label=f"threshold {threshold:g}")
            rate.legend()
        rate.set_xlabel(name)
        rate.set_ylim(0, 105)
        rate.grid(visible=True)
    panels[0][0].set_ylabel("rows")
    panels[1][0].set_ylabel("rows at or above, %")
    return figure
