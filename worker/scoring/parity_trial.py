"""How far the logits of a fast way of scoring are from those of the plain one. Needs no torch."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]  # shape (rows, outputs)


@dataclass(frozen=True, kw_only=True)
class ParityTrial:
    """The logits that the plain and the optimised model give to the same texts."""

    reference: Logits
    fast: Logits

    @property
    def rows(self) -> int:
        return len(self.reference)

    @property
    def max_error(self) -> float:
        return float(self._errors.max(initial=0))

    @property
    def p999_error(self) -> float:
        """The error that 999 of 1,000 logits do not exceed."""
        return float(np.quantile(self._errors, 0.999)) if self._errors.size else 0.0

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation of each row's highest logit; 1 if the reference gives all rows the same score."""
        reference, fast = (_ranks(logits.max(axis=1)) for logits in (self.reference, self.fast))
        if reference.std() == 0:
            return 1.0
        return float(np.corrcoef(reference, fast)[0, 1]) if fast.std() else 0.0

    @property
    def _errors(self) -> npt.NDArray[np.float32]:
        return np.abs(np.subtract(self.reference, self.fast, dtype=np.float32))


def _ranks(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Equal scores share the mean of their ranks."""
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[group]
