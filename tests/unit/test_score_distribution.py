"""The bins and the table of a histogram count every row once, and say what each threshold would keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.run.receipt import Histogram
from producer.scores.distribution import score_bins, score_table, threshold_of
from producer.status.screen import spread_line

LOGITS = Histogram(bins_per_unit=4, rows_by_bin={-1: 10, 0: 40, 9: 20, 10: 10, 12: 15, 14: 5})
histograms = st.dictionaries(st.integers(-400, 400), st.integers(1, 50), max_size=30).map(
    lambda rows: Histogram(bins_per_unit=4, rows_by_bin=rows)
)


@given(histograms, st.integers(2, 40))
def test_every_row_is_in_one_bin_and_each_bin_says_what_its_score_would_keep(found: Histogram, most: int) -> None:
    bins = score_bins(found, most=most)

    assert len(bins) <= most
    assert sum(one.rows for one in bins) == found.rows
    assert all(first.end == second.start for first, second in zip(bins, bins[1:], strict=False))
    for one in bins:
        assert one.at_least == sum(rows for number, rows in found.rows_by_bin.items() if number / 4 >= one.start)


def test_the_table_has_a_line_for_each_bin() -> None:
    table = score_table(Histogram(bins_per_unit=4, rows_by_bin={8: 1, 10: 3}))

    assert table.splitlines() == [
        "from  rows  share  this or more",
        "2.00     1  25.0%        100.0%  ███████████",
        "2.25     0   0.0%         75.0%",
        "2.50     3  75.0%         75.0%  ████████████████████████████████",
    ]


@pytest.mark.parametrize(
    ("where", "threshold"),
    [
        ("score >= 3", 3.0),
        ('"score" >= 3.5', 3.5),
        *((other, None) for other in (None, "score >= 3 and language = 'en'", "other >= 3", "label = 'POSITIVE'")),
    ],
)
def test_only_a_filter_that_compares_the_score_with_a_number_is_a_threshold(
    where: str | None, threshold: float | None
) -> None:
    assert threshold_of(where, "score") == threshold


def test_the_line_of_status_has_a_bar_for_each_bin_and_at_most_forty() -> None:
    wide = Histogram(bins_per_unit=4, rows_by_bin={-400: 1, 400: 8})

    assert spread_line(LOGITS) == "-0.25 ▂█        ▄▂ ▃ ▁ 3.75"
    assert spread_line(Histogram(bins_per_unit=4, rows_by_bin={8: 3})) == "2 █ 2.25"
    assert len(spread_line(wide)) < 55
