"""What goes through a scorer: rows as token ids, and rows with their scores. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from worker.scoring.tokenizing.tokens import Tokens

Indices = npt.NDArray[np.int64]
GoOn = Callable[[int], bool]  # is told the rows of the window so far, and says whether to go on with the next batch
_NONE = np.empty(0, dtype=np.int64)


def always(rows: int) -> bool:
    """Nobody watches, and nobody ends it."""
    return True


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The token ids of some rows' texts, but for those that have none."""

    rows: int  # all of them
    tokens: Tokens
    row_of_text: Indices
    errors: dict[int, str]  # of the rows that are not in `tokens`


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw logits, float32, shape (rows, outputs); NaN in the rows that `errors` names with a reason, and in `missing`."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)
    missing: Indices = field(default_factory=lambda: _NONE)  # rows whose batch was not reached

    @property
    def complete(self) -> bool:
        return not len(self.missing)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which rows have been through, shape (rows,)."""
        known = np.ones(len(self.values), dtype=np.bool_)
        known[self.missing] = False
        return known

    def filled_from(self, earlier: "Scores") -> "Scores":
        """With the missing rows' scores taken from an earlier scoring of the same rows, as far as it got."""
        found = self.missing[earlier.known[self.missing]]
        values = self.values.copy()
        values[found] = earlier.values[found]
        errors = self.errors | {row: earlier.errors[row] for row in found.tolist() if row in earlier.errors}
        missing = np.setdiff1d(self.missing, found)
        return replace(self, values=values, errors=dict(sorted(errors.items())), missing=missing)
