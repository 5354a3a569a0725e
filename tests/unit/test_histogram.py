"""Histograms of scores have fixed bins, so those of windows and shards add up to that of the run."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shardsift.fleet.run.receipt import added, empty_histogram, with_values

SCORES = arrays(np.float32, st.integers(0, 50), elements=st.floats(-200, 200, width=32))


def test_a_row_is_counted_in_the_bin_that_begins_at_or_below_its_score() -> None:
    scores = np.array([2.5, 2.74, 3.0, 2.9999998, -0.1], dtype=np.float32)

    assert with_values(empty_histogram("none"), scores).rows_by_bin == {-1: 1, 10: 2, 11: 1, 12: 1}


@given(SCORES, SCORES)
def test_parts_add_up_to_the_whole(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> None:
    empty = empty_histogram("none")

    parts = added([with_values(empty, one), with_values(empty, other)])

    assert parts == with_values(empty, np.concatenate([one, other])) == with_values(with_values(empty, other), one)
    assert parts.rows == len(one) + len(other)


def test_a_histogram_stays_small_whatever_the_scores_are() -> None:
    scores = np.linspace(-1e30, 1e30, 10_001, dtype=np.float32)

    assert with_values(empty_histogram("none"), scores).rows_by_bin == {-400: 5000, 0: 1, 400: 5000}
