"""A number that is only known to lie in a range."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Range:
    low: float
    high: float

    def __mul__(self, factor: float) -> "Range":
        return Range(low=self.low * factor, high=self.high * factor)

    def widened(self, share: float) -> "Range":
        """The range if it is also off by up to this share of its value."""
        return Range(low=self.low * max(0.0, 1 - share), high=self.high * (1 + share))
