"""Texts for trials of a model, where no data is at hand: English prose out of Python itself, as long as web pages are."""

from pydoc_data.topics import topics

import numpy as np

_MEAN_CHARS, _SPREAD = 3_400, 1.0  # FineWeb's: log-normal; the spread is the standard deviation of the logarithm
_SHORTEST, _LONGEST = 40, 40_000


def sample_texts(count: int, *, seed: int = 0) -> list[str]:
    """The same texts for the same arguments and version of Python."""
    prose = "\n".join(topics[name] for name in sorted(topics))
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(_MEAN_CHARS) - _SPREAD**2 / 2, _SPREAD, count)
    lengths = np.clip(lengths, _SHORTEST, _LONGEST).astype(int)
    starts = rng.integers(0, len(prose) - _LONGEST, count)
    return [prose[start : start + length] for start, length in zip(starts, lengths, strict=True)]
