"""The input and output of a scorer: rows as token ids, and rows with their scores. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from worker.scoring.tokenizing.tokens import Counts, Sequences

Indices = npt.NDArray[np.int64]
GoOn = Callable[[int], bool]  # takes the rows scored so far in the window; returns whether to score the next batch
_NONE = np.empty(0, dtype=np.int64)


def always(rows: int) -> bool:
    """A `GoOn` that never stops."""
    return True


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The token ids of a window: one or more sequences of each text. Rows without a token are in `errors` only."""

    rows: int  # including those in `errors`
    sequences: Sequences
    offsets: Counts  # of each text in `sequences`, and the end of the last
    row_of_text: Indices
    errors: dict[int, str]  # row → why it has no sequence


def token_count(encoded: object) -> int:
    """The tokens that go through the model, without padding. 0 if the scorer has none."""
    return int(encoded.sequences.batch_lengths.sum()) if isinstance(encoded, EncodedRows) else 0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw float32 logits of shape (rows, outputs). Rows in `errors` and `missing` are NaN."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)  # row → reason
    missing: Indices = field(default_factory=lambda: _NONE)  # rows whose batch was not reached

    @property
    def has_all_rows(self) -> bool:
        return not len(self.missing)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which rows are scored or errored, shape (rows,)."""
        known = np.ones(len(self.values), dtype=np.bool_)
        known[self.missing] = False
        return known

    def filled_from(self, earlier: "Scores") -> "Scores":
        """These scores, with missing rows taken from an earlier scoring of the same rows, if it has them."""
        found = self.missing[earlier.known[self.missing]]
        values = self.values.copy()
        values[found] = earlier.values[found]
        errors = self.errors | {row: earlier.errors[row] for row in found.tolist() if row in earlier.errors}
        missing = np.setdiff1d(self.missing, found)
        return replace(self, values=values, errors=dict(sorted(errors.items())), missing=missing)
