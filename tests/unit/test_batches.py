"""The plan of a window's batches: every row once, within the budget, with little padding."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.run.spec import WINDOW_ROWS
from shardsift.worker.scoring.tokenizing.tokens import plan_batches

lengths_of_rows = st.lists(st.integers(0, 600), max_size=300).map(lambda rows: np.array(rows, dtype=np.int64))
budgets = st.integers(1, 20_000)


def padded_tokens(batch: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> int:
    return len(batch) * max(1, int(lengths[batch].max()))


@given(lengths_of_rows, budgets)
def test_each_row_is_in_one_batch_within_budget_the_longest_first(lengths: npt.NDArray[np.int64], budget: int) -> None:
    """So that a lack of memory shows at once. A row longer than the budget is a batch of its own."""
    batches = plan_batches(lengths, max_batch_tokens=budget)

    rows = [int(row) for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(lengths)))
    assert all(len(batch) == 1 or padded_tokens(batch, lengths) <= budget for batch in batches)
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)


@given(lengths_of_rows, budgets)
def test_a_batch_that_is_not_the_last_has_no_room_for_another_row(lengths: npt.NDArray[np.int64], budget: int) -> None:
    *full, _last = plan_batches(lengths, max_batch_tokens=budget) or [[]]

    assert all(padded_tokens(batch, lengths) + max(1, lengths[batch].max()) > budget for batch in full)


@pytest.mark.parametrize("max_batch_tokens", [2_048, 32_768], ids=["a CPU's budget", "a GPU's budget"])
def test_padding_is_under_a_fiftieth_on_lengths_like_finewebs(max_batch_tokens: int) -> None:
    rng = np.random.default_rng(0)
    mean, sigma = 698, 1.0
    drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, size=WINDOW_ROWS)
    lengths = np.clip(drawn, 2, 512).astype(np.int64)

    batches = plan_batches(lengths, max_batch_tokens=max_batch_tokens)

    sent = sum(padded_tokens(batch, lengths) for batch in batches)
    assert 0 < 1 - lengths.sum() / sent < 0.02
