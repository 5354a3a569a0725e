"""Plan the batches of a window. A pure function: takes lengths, returns row indices."""

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def plan_batches(lengths: Rows, *, max_batch_tokens: int) -> list[Rows]:
    """Group rows of similar length so that a padded batch has at most `max_batch_tokens`, longest rows first.

    The plan depends on the lengths alone, so a window that is scored again has the same batches and the same rounding.
    A row longer than the budget gets a batch of its own.
    """
    by_length = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(by_length):
        longest = max(1, int(lengths[by_length[start]]))
        rows = max(1, max_batch_tokens // longest)
        batches.append(by_length[start : start + rows])
        start += rows
    return batches


def padded_tokens(lengths: Rows, batch: Rows) -> int:
    """The number of tokens in a batch when every row is padded to the longest."""
    return len(batch) * int(lengths[batch].max())
