"""Strata of scores: none is empty, each row is in one, and a sheet's names give them back."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.strata import (
    Cells,
    Stratum,
    cells_of,
    counted_cells,
    strata_around,
    strata_of_cells,
    stratum_named,
)
from shardsift.producer.planning.cut import keys_of

Scores = npt.NDArray[np.float32]

few_distinct = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.1, 1.0, 3.0])
any_finite = st.floats(width=32, allow_nan=False)  # also infinite, -0.0 and subnormal ones
scores = st.one_of(*(arrays.arrays(np.float32, st.integers(1, 60), elements=one) for one in (few_distinct, any_finite)))
thresholds = st.one_of(st.sampled_from([-1.0, -0.0, 0.1, 0.7, 3.0]), st.floats(-1e6, 1e6))


def cells(found: Scores, numbers: npt.NDArray[np.int64], threshold: float) -> Cells:
    keys = cells_of(keys_of(found, numbers), threshold)
    return counted_cells(Counter(keys.tolist()), threshold)


@given(scores, thresholds, st.data())
def test_each_row_is_in_one_stratum_none_is_empty_and_the_threshold_is_an_edge(
    found: Scores, threshold: float, data: st.DataObject
) -> None:
    values = data.draw(st.sampled_from([[None], ["a"], ["b", "a", "c"]]))
    numbers = np.arange(len(found)) % len(values)
    values = values[: len(found)]
    within = None if values == [None] else "topic"
    counted = cells(found, numbers, threshold)

    strata = strata_around(counted, values, within, drawn=data.draw(st.integers(60, 500)))

    stratum_of = strata_of_cells(strata, counted, values)
    rows = Counter[Stratum]()
    for cell, count in zip(counted.cells.tolist(), counted.rows.tolist(), strict=True):
        rows[stratum_of[cell]] += count
    assert rows == {
        stratum: sum(
            stratum.has(score) and stratum.value == (values[number] or "")
            for score, number in zip(found.tolist(), numbers.tolist(), strict=True)
        )
        for stratum in strata
    }
    assert min(rows.values()) > 0
    assert rows.total() == len(found)
    at = np.float32(threshold)
    assert all(stratum.high <= at or stratum.low >= at for stratum in strata)
    assert [stratum_named(stratum.name) for stratum in strata] == strata


def test_rows_near_the_threshold_are_in_smaller_strata() -> None:
    found = np.random.default_rng(0).normal(0, 2, 20_000).astype(np.float32)
    counted = cells(found, np.zeros(len(found), np.int64), 2.0)

    strata = strata_around(counted, [None], None, drawn=400)

    sizes = [int(((found >= one.low) & (found < one.high)).sum()) for one in strata]
    assert len(strata) == 8
    assert sizes[:4] == sorted(sizes[:4], reverse=True)
    assert sizes[4:] == sorted(sizes[4:])
    assert sizes[3] * 4 < sizes[0]
    assert len(strata_around(counted, [None], None, drawn=20)) == 2
    with pytest.raises(UsageError, match=r"^Draw more than 1 row: each of 2 strata needs one\."):
        strata_around(counted, [None], None, drawn=1)


@pytest.mark.parametrize("value", ["news", "", "a=b", "two\nlines", "=", "Ünï, \"quoted\" 'x'", "7"])
@pytest.mark.parametrize("column", ["topic", "my topic", "a=b"])
def test_a_stratum_of_a_value_has_a_name_that_gives_it_back(column: str, value: str) -> None:
    stratum = Stratum(low=-0.5, high=float(np.float32(0.1)), within=column, value=value)

    assert stratum_named(stratum.name) == stratum
    assert "0.1" not in stratum.name


def test_what_is_no_name_of_a_stratum_is_refused() -> None:
    for name in ("", "None", "3 to 4", "40400000-7f80000"):
        with pytest.raises(UsageError, match="is no stratum of `producer sample`. Leave this column as it was written"):
            stratum_named(name)


def test_strata_around_another_threshold_or_with_a_gap_are_refused() -> None:
    found = np.linspace(0, 4, 400, dtype=np.float32)
    counted, other = (cells(found, np.zeros(400, np.int64), threshold) for threshold in (2.1, 2.2))
    strata = strata_around(counted, [None], None, drawn=400)

    for wrong in (strata_around(other, [None], None, drawn=400), strata[1:], strata[:-1], strata[:2] + strata[3:], []):
        with pytest.raises(UsageError, match=r"^These rows are not of the strata around 2\.1\. Name the threshold"):
            strata_of_cells(wrong, counted, [None])
    with pytest.raises(UsageError, match="^No row of this run is in the stratum topic a, score 0 or more and"):
        strata_of_cells([Stratum(low=0, high=1, within="topic", value="a")], counted, ["b"])
