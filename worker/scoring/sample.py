"""Sample texts for testing a model without data: English prose from Python's own help, in lengths typical of web pages."""

from pydoc_data.topics import topics

import numpy as np

_MEAN_CHARS, _SPREAD = 3_400, 1.0  # as in FineWeb: log-normal; the spread is the standard deviation of the logarithm
_SHORTEST, _LONGEST = 40, 40_000


def sample_texts(count: int, *, seed: int = 0) -> list[str]:
    """Deterministic for the same arguments and Python version."""
    prose = "\n".join(topics[name] for name in sorted(topics))
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(_MEAN_CHARS) - _SPREAD**2 / 2, _SPREAD, count)
    lengths = np.clip(lengths, _SHORTEST, _LONGEST).astype(int)
    starts = rng.integers(0, len(prose) - _LONGEST, count)
    return [prose[start : start + length] for start, length in zip(starts, lengths, strict=True)]
