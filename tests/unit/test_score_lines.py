"""The lines about a run's scores are true and short."""

import pytest

from fleet.run.receipt import Histogram
from producer.scores.distribution import threshold_of
from producer.status.screen import spread_line

LOGITS = Histogram(bins_per_unit=4, rows_by_bin={-1: 10, 0: 40, 9: 20, 10: 10, 12: 15, 14: 5})


@pytest.mark.parametrize(("where", "threshold"), [("score >= 3", 3.0), ('"score" >= 3.5', 3.5)])
def test_a_filter_that_compares_a_score_with_a_number_is_a_threshold(where: str, threshold: float) -> None:
    assert threshold_of(where, "score") == threshold


@pytest.mark.parametrize("where", [None, "score >= 3 and language = 'en'", "other >= 3", "label = 'POSITIVE'"])
def test_any_other_filter_is_none(where: str | None) -> None:
    assert threshold_of(where, "score") is None


def test_each_bin_has_a_bar_and_a_wide_spread_has_at_most_forty() -> None:
    wide = Histogram(bins_per_unit=4, rows_by_bin={-400: 1, 400: 8})

    assert spread_line(LOGITS) == "-0.25 ▂█        ▄▂ ▃ ▁ 3.75"
    assert spread_line(Histogram(bins_per_unit=4, rows_by_bin={8: 3})) == "2 █ 2.25"
    assert len(spread_line(wide)) < 55
