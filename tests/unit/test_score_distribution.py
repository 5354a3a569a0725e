"""Quantiles, keep rates, thresholds and histograms from counted scores agree with numpy on the scores themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.scores.distribution import Distribution, added

STEPS = 1000
some_scores = st.lists(st.floats(-3, 6, width=32).map(lambda score: round(score, 3)), min_size=1, max_size=60)


def distribution(scores: list[float], *, steps: int = STEPS, labels: dict[str, int] | None = None) -> Distribution:
    numbers, rows = np.unique(np.floor(np.round(np.array(scores) * steps, 6)).astype(int), return_counts=True)
    return Distribution(
        column="score",
        steps_per_unit=steps,
        rows_by_step=dict(zip(numbers.tolist(), rows.tolist(), strict=True)),
        labels=labels or {},
    )


@given(some_scores, st.integers(-3000, 6000))
def test_rows_at_or_above_a_threshold_are_counted_exactly(scores: list[float], thousandths: int) -> None:
    threshold = thousandths / STEPS

    assert distribution(scores).at_least(threshold) == sum(score >= threshold for score in scores)


@given(some_scores)
def test_the_keep_rate_is_given_at_every_score_and_ends_with_none(scores: list[float]) -> None:
    rates = distribution(scores).keep_rates()

    assert set(scores) <= set(rates)
    assert list(rates) == sorted(rates)
    assert list(rates.values())[-1] == 0
    for threshold, rate in rates.items():
        assert rate == pytest.approx(sum(score >= threshold for score in scores) / len(scores))


@given(some_scores, st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]))
def test_a_quantile_is_that_of_the_sorted_scores(scores: list[float], share: float) -> None:
    expected = np.quantile(scores, share, method="inverted_cdf")

    assert distribution(scores).quantile(share) == pytest.approx(expected, abs=1 / STEPS)


@given(some_scores)
def test_every_row_is_in_a_bin_of_the_histogram_and_thresholds_span_the_scores(scores: list[float]) -> None:
    found = distribution(scores)
    bins = found.histogram(found.bin_width())

    assert sum(bins.values()) == len(scores)
    assert all(first < second for first, second in zip(bins, list(bins)[1:], strict=False))
    assert found.thresholds()[0] <= found.quantile(0.01)
    assert found.thresholds()[-1] >= found.quantile(0.99)
    assert len(found.thresholds()) <= 14


def test_distributions_of_shards_add_up() -> None:
    both = added([distribution([0.5, 1.5], labels={"a": 2}), distribution([1.5, 2.5], labels={"b": 1, "a": 1})])

    assert both.rows_by_step == {500: 1, 1500: 2, 2500: 1}
    assert both.labels == {"a": 3, "b": 1}


def test_the_wide_steps_of_receipts_give_round_thresholds_that_are_exact() -> None:
    found = distribution([0.1, 1.0, 2.4, 2.5, 2.6, 3.0], steps=4)

    assert 2.5 in found.thresholds()
    assert [found.at_least(threshold) for threshold in (2.5, 2.75, 3.0)] == [3, 1, 1]


def test_without_a_score_there_is_nothing_to_show() -> None:
    nothing = Distribution(column="score", steps_per_unit=STEPS, rows_by_step={})

    assert (nothing.rows, nothing.thresholds(), nothing.at_least(0)) == (0, [], 0)
    with pytest.raises(ValueError, match="no score"):
        nothing.quantile(0.5)
