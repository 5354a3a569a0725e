"""The lines about a run's scores are true and short."""

import pytest

from fleet.run.receipt import Histogram
from producer.status.facts import kept_line, neighbours, spread_line

LOGITS = Histogram(bins_per_unit=4, rows_by_bin={-1: 10, 0: 40, 9: 20, 10: 10, 12: 15, 14: 5})
SHARES = Histogram(bins_per_unit=20, rows_by_bin={0: 90, 18: 4, 19: 6})


def test_neighbouring_thresholds_are_half_a_logit_or_a_tenth_of_a_probability_away() -> None:
    assert list(neighbours("score >= 3", {"score": LOGITS})) == [(2.5, 0.3), (3.5, 0.05)]
    assert list(neighbours("tox_score >= 0.9", {"tox_score": SHARES})) == [(0.8, 0.1), (1.0, 0.0)]


@pytest.mark.parametrize("where", [None, "score >= 3 and language = 'en'", "other >= 3", "label = 'POSITIVE'"])
def test_a_filter_that_is_no_threshold_has_no_neighbours(where: str | None) -> None:
    assert kept_line(20, 100, where, {"score": LOGITS}) == "20.0% so far"


def test_the_kept_share_comes_with_its_neighbours() -> None:
    assert (
        kept_line(20, 100, "score >= 3", {"score": LOGITS}) == "20.0% so far (by threshold: 30.0% at 2.5, 5.0% at 3.5)"
    )
    assert kept_line(1, 2000, None, {}) == "0.05% so far"


def test_each_bin_has_a_bar_and_a_wide_spread_has_at_most_forty() -> None:
    wide = Histogram(bins_per_unit=4, rows_by_bin={-400: 1, 400: 8})

    assert spread_line(LOGITS) == "-0.25 ▂█        ▄▂ ▃ ▁ 3.75"
    assert spread_line(Histogram(bins_per_unit=4, rows_by_bin={8: 3})) == "2 █ 2.25"
    assert len(spread_line(wide)) < 55
