"""Compare the logits of the optimised model with the plain model's. Needs no torch."""

from dataclasses import dataclass
from pydoc_data.topics import topics

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]  # shape (rows, outputs)


@dataclass(frozen=True, kw_only=True)
class ParityTrial:
    """The logits of the plain and the optimised model for the same texts."""

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
        return float(np.quantile(self._errors, 0.999)) if self._errors.size else 0.0

    @property
    def scale(self) -> float:
        """The largest absolute logit of the plain model, but at least 1. Errors are relative to this scale."""
        return max(1.0, float(np.abs(self.reference).max(initial=0)))

    def rank_correlation(self, rounding: float = 0.0) -> float:
        """Compute Spearman's rank correlation of the two models, by each row's highest logit.

        Returns 1 if the plain model's highest logit is the same in all rows.

        Rows whose logits differ by less than the format's precision may change ranks. So d = `rounding` × `scale` is
        subtracted from each error: with the reference r and the fast logits f, the ranks of r are compared with those
        of r + sign(f - r) · max(|f - r| - d, 0).
        """
        reference, fast = (logits.max(axis=1).astype(np.float64) for logits in (self.reference, self.fast))
        error = fast - reference
        beyond_rounding = np.sign(error) * np.maximum(np.abs(error) - rounding * self.scale, 0)
        expected, found = _ranks(reference), _ranks(reference + beyond_rounding)
        if expected.std() == 0:
            return 1.0
        return float(np.corrcoef(expected, found)[0, 1]) if found.std() else 0.0

    @property
    def _errors(self) -> npt.NDArray[np.float32]:
        return np.abs(np.subtract(self.reference, self.fast, dtype=np.float32))


def _ranks(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rank the scores. Equal scores share the mean of their ranks."""
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[group]


# Sample texts to test a model with: English prose from Python's help, with the lengths of typical web pages.

_MEAN_CHARS, _SPREAD = 3_400, 1.0  # log-normal as in FineWeb; spread: standard deviation of the logarithm
_SHORTEST, _LONGEST = 40, 40_000


def sample_texts(count: int, *, seed: int = 0) -> list[str]:
    """Make sample texts. The same arguments and Python version always give the same texts."""
    prose = "\n".join(topics[name] for name in sorted(topics))
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(_MEAN_CHARS) - _SPREAD**2 / 2, _SPREAD, count)
    lengths = np.clip(lengths, _SHORTEST, _LONGEST).astype(int)
    starts = rng.integers(0, len(prose) - _LONGEST, count)
    return [prose[start : start + length] for start, length in zip(starts, lengths, strict=True)]
