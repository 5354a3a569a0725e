"""The bins and the table of a histogram count every row once, and say what each threshold would keep. Edges are exact."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.filter import Filter
from shardsift.fleet.run.receipt import Histogram
from shardsift.producer.planning.cut import bucket_shares, exact_edges, keys_of, share_of
from shardsift.producer.scores.distribution import filter_threshold, score_bins
from shardsift.producer.status.screen import spread_line

Floats = npt.NDArray[Any]
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


@pytest.mark.parametrize(
    ("where", "threshold"),
    [
        ("score >= 3", 3.0),
        ('"score" >= 3.5', 3.5),
        ("SCORE > .5", 0.5),
        ("score >= 1e-3", 0.001),
        *((other, None) for other in (None, "score >= 3 and language = 'en'", "other >= 3", "label = 'POSITIVE'")),
    ],
)
def test_only_a_filter_that_compares_the_score_with_a_number_is_a_threshold(
    where: str | None, threshold: float | None
) -> None:
    assert filter_threshold(where, "score") == threshold


def test_the_line_of_status_has_a_bar_for_each_bin_and_at_most_forty() -> None:
    wide = Histogram(bins_per_unit=4, rows_by_bin={-400: 1, 400: 8})

    assert spread_line(LOGITS) == "-0.25 ▂█        ▄▂ ▃ ▁ 3.75"
    assert spread_line(Histogram(bins_per_unit=4, rows_by_bin={8: 3})) == "2 █ 2.25"
    assert len(spread_line(wide)) < 55


def by_sorting(scores: Floats, weights: Floats, share: Fraction) -> float:
    """The edge of the best rows, without any haste."""
    order = np.argsort(-scores, kind="stable")
    reached = weights[order].cumsum() >= math.ceil(share * int(weights.sum()))
    return float(scores[order][reached.argmax()])


@pytest.mark.parametrize("upper_bits", [0xFFFFFFFF, 0xFFFF0000], ids=["float32", "bfloat16, with many ties"])
@pytest.mark.parametrize(("rows", "reads"), [(6000, 1), (1 << 30, 2)], ids=["few rows", "more than fit in memory"])
def test_edges_are_those_of_sorted_rows_which_are_read_once_or_twice(upper_bits: int, rows: int, reads: int) -> None:
    rng = np.random.default_rng(5)
    scores = (rng.normal(size=6000).astype(np.float32).view(np.uint32) & np.uint32(upper_bits)).view(np.float32)
    scores[:99] *= 1e-30
    labels, weights = rng.integers(0, 3, 6000), rng.integers(0, 900, 6000)
    weights[labels == 2] = 0
    blocks = [
        (keys_of(scores[at : at + 700], labels[at : at + 700]), weights[at : at + 700]) for at in range(0, 6000, 700)
    ]
    shares, read = [Fraction("0.001"), *bucket_shares(20)], []

    found = exact_edges(lambda: read.append(1) or blocks, ["b", "a", "none"], shares, rows=rows)

    assert len(read) == reads

    expected = [
        (value, by_sorting(scores[labels == label], weights[labels == label], share))
        for value, label in (("a", 1), ("b", 0))  # no row of "none" has a weight
        for share in shares
    ]
    assert [(edge.value, edge.score) for edge in found] == expected
    for edge in found:
        kept = (labels == "ba".index(str(edge.value))) & (scores >= edge.score)
        assert (edge.rows, edge.weight) == (kept.sum(), weights[kept].sum())


def test_an_edge_tells_neighbouring_scores_apart_and_keeps_ties() -> None:
    below, above = np.nextafter(np.float32(0.1), np.float32([0, 1]))
    scores = np.array([below, 0.1, 0.1, above, -0.0, 0.0], np.float32)
    blocks = [(keys_of(scores, np.zeros(6, np.int64)), np.ones(6))]

    edges = exact_edges(lambda: blocks, [None], [Fraction(rows, 6) for rows in range(1, 7)], rows=6)

    assert [edge.rows for edge in edges] == [1, 3, 3, 4, 6, 6]
    schema = pa.schema([("score", pa.float32())])
    for edge in edges:  # as SQL compares them
        assert len(Filter(f'"score" >= {edge.score!r}', schema).keep(pa.table([scores], schema))) == edge.rows


def test_the_memory_for_edges_is_bounded() -> None:
    with pytest.raises(UsageError, match="more than 2,048 edges of 200 values. Ask for fewer buckets"):
        exact_edges(
            lambda: [(keys_of(np.ones(200, np.float32), np.arange(200)), np.ones(200))],
            list(range(200)),
            bucket_shares(20),
            rows=200,
        )


@pytest.mark.parametrize("text", ["10", "0%", "100%", "-1%", "ten%", "", "1/3%"])
def test_a_share_is_a_percentage(text: str) -> None:
    assert (share_of("10%"), share_of("0.5%")) == (Fraction(1, 10), Fraction(1, 200))
    with pytest.raises(UsageError, match="--keep-top takes a percentage between 0% and 100%, like 10%"):
        share_of(text)
