"""The charts of the Runs page, as JSON: the spread of the scores so far, and what the run was doing over time."""

from dataclasses import asdict

from fleet.histogram import Histogram
from fleet.ledger.history import HistoryPoint
from producer.score_lines import threshold_of
from producer.scores.distribution import Distribution
from producer.status import RunStatus


def scores(status: RunStatus) -> list[dict[str, object]]:
    """A chart for each score column that has a row. `threshold` is the filter's, if the filter is one on that column."""
    return [
        _chart(column, histogram, threshold_of(status.where, column))
        for column, histogram in status.histograms.items()
        if histogram.rows
    ]


def throughput(history: list[HistoryPoint]) -> list[dict[str, object]]:
    return [asdict(point) | {"rows_per_second": round(point.rows_per_second, 1)} for point in history]


def _chart(column: str, histogram: Histogram, threshold: float | None) -> dict[str, object]:
    spread = Distribution(
        column=column, steps_per_unit=histogram.bins_per_unit, rows_by_step=dict(histogram.rows_by_bin)
    )
    width = spread.bin_width()
    return {
        "column": column,
        "rows": spread.rows,
        "bin_width": width,
        "bins": [{"from": edge, "rows": rows} for edge, rows in spread.histogram(width).items()],
        "threshold": threshold,
        "keep_rates": [{"threshold": one, "rows": spread.at_least(one)} for one in spread.thresholds()],
    }
