"""Histograms of scores. All bins have the same fixed width, so the histograms of shards can be added."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_BINS_PER_UNIT = {
    "none": 4,
    "sigmoid": 20,
    "softmax": 20,
}  # logits are spread over several units, probabilities over one
_LAST_BIN = 400  # on either side of zero; it also counts all scores beyond it, so that a receipt stays small


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """`rows_by_bin[i]` rows have a score of at least `i / bins_per_unit` and less than `(i + 1) / bins_per_unit`.

    Bins without rows are left out. Errored rows have no score and are in no bin.
    """

    bins_per_unit: int
    rows_by_bin: dict[int, int]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_bin.values())


def empty_histogram(function_to_apply: str) -> Histogram:
    """A histogram whose bins suit the scores that this function returns."""
    return Histogram(bins_per_unit=_BINS_PER_UNIT[function_to_apply], rows_by_bin={})


def with_values(histogram: Histogram, values: "npt.NDArray[np.float32]") -> Histogram:
    """The histogram with more scores. `values` has the shape (rows,) and holds no NaN."""
    import numpy as np  # here, because most programs only read histograms, and numpy takes a quarter of a second

    bins = np.floor(values.astype(np.float64) * histogram.bins_per_unit).clip(-_LAST_BIN, _LAST_BIN)
    numbers, rows = np.unique(bins.astype(np.int64), return_counts=True)
    counted = zip(numbers.tolist(), rows.tolist(), strict=True)
    return added([histogram, Histogram(bins_per_unit=histogram.bins_per_unit, rows_by_bin=dict(counted))])


def added(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all rows. There is at least one, and all have bins of the same width."""
    first, *others = histograms
    rows = Counter(first.rows_by_bin)
    for other in others:
        if other.bins_per_unit != first.bins_per_unit:
            raise ValueError(f"Bins of 1/{first.bins_per_unit} and of 1/{other.bins_per_unit} cannot be added.")
        rows.update(other.rows_by_bin)
    return Histogram(bins_per_unit=first.bins_per_unit, rows_by_bin=dict(sorted(rows.items())))
