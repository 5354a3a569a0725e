"""The card's histogram: how many rows have each score, and how many have that score or more, whatever else a filter asks."""

from itertools import accumulate

from fleet.histogram import Histogram

_LINES = 24  # at most
_BAR = 32  # characters of the longest bar
_HEAD = ("from", "rows", "share", "this or more")


def score_histogram(histogram: Histogram) -> str:
    """One line per bin, from the lowest to the highest bin that has rows. Empty if no row has a score."""
    if not histogram.rows:
        return ""
    bins_per_line = _bins_per_line(histogram)
    rows_by_line: dict[int, int] = {}
    for number, rows in histogram.rows_by_bin.items():
        line = number // bins_per_line
        rows_by_line[line] = rows_by_line.get(line, 0) + rows
    lines = range(min(rows_by_line), max(rows_by_line) + 1)
    rows_of_lines = [rows_by_line.get(line, 0) for line in lines]
    edges = [line * bins_per_line / histogram.bins_per_unit for line in lines]
    return _text(edges, rows_of_lines)


def _bins_per_line(histogram: Histogram) -> int:
    first, last = min(histogram.rows_by_bin), max(histogram.rows_by_bin)
    bins = 1
    while last // bins - first // bins >= _LINES:
        bins *= 2
    return bins


def _text(edges: list[float], rows_of_lines: list[int]) -> str:
    all_rows, most = sum(rows_of_lines), max(rows_of_lines)
    below = accumulate(rows_of_lines, initial=0)
    cells = [
        (f"{edge:.2f}", f"{rows:,}", f"{rows / all_rows:.1%}", f"{(all_rows - fewer) / all_rows:.1%}")
        for edge, rows, fewer in zip(edges, rows_of_lines, below, strict=False)
    ]
    widths = [max(map(len, column)) for column in zip(_HEAD, *cells, strict=True)]
    bars = ["", *("█" * round(_BAR * rows / most) for rows in rows_of_lines)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in (_HEAD, *cells)]
    return "\n".join(f"{line}  {bar}".rstrip() for line, bar in zip(lines, bars, strict=True))
