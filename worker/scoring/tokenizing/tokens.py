"""Token ids of many texts in one flat array, and their batches. Knows nothing of tokenizers or models."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The token ids of several texts in one array. Text i has the ids `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids  # shape (tokens,)
    offsets: Int64s  # shape (texts + 1,), starting at 0
    types: npt.NDArray[np.int8] | None = None  # token type ids, shape (tokens,); None if all are 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, text: int) -> Ids:
        return self.ids[self.offsets[text] : self.offsets[text + 1]]

    @property
    def lengths(self) -> Int64s:
        return np.diff(self.offsets)

    @property
    def batch_lengths(self) -> Int64s:
        return self.lengths

    def take(self, texts: Int64s) -> "Tokens":
        lengths = self.lengths[texts]
        places = ranges(self.offsets[texts], lengths)
        types = None if self.types is None else self.types[places]
        return Tokens(ids=self.ids[places], offsets=offsets_of(lengths), types=types)


class Sequences(Protocol):
    """The sequences of token ids that a model scores, each by itself. `take` may assemble them on demand."""

    def __len__(self) -> int: ...

    @property
    def batch_lengths(self) -> Int64s:
        """The lengths to plan batches by, each at least the sequence's own length. Shape (sequences,)."""

    def take(self, sequences: Int64s, /) -> Tokens:
        """Return the tokens of some sequences, in the given order."""


def flat(texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> Tokens:
    """Make Tokens from lists of ids and token types. Types are left out if all are 0."""
    offsets = offsets_of(np.fromiter(map(len, texts), np.int64, len(texts)))
    ids = np.fromiter(chain.from_iterable(texts), np.int32, offsets[-1])
    if types is None or not any(map(any, types)):
        return Tokens(ids=ids, offsets=offsets)
    return Tokens(ids=ids, offsets=offsets, types=np.fromiter(chain.from_iterable(types), np.int8, len(ids)))


def joined(parts: Sequence[Tokens]) -> Tokens:
    types = [np.zeros(len(part.ids), np.int8) if part.types is None else part.types for part in parts]
    return Tokens(
        ids=np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]),
        offsets=offsets_of(np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])),
        types=np.concatenate(types) if any(part.types is not None for part in parts) else None,
    )


def offsets_of(lengths: Int64s) -> Int64s:
    """Return the start of each text, and the end of the last one, from the lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Concatenate ranges, each with a start and a length: [5, 1], [2, 3] → [5, 6, 1, 2, 3]."""
    offsets = offsets_of(lengths)
    places: Int64s = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return places


def plan_batches(lengths: Int64s, *, max_batch_tokens: int) -> list[Int64s]:
    """Group rows of similar length so that a padded batch has at most `max_batch_tokens`, longest rows first.

    The plan depends only on the lengths, so a window that is scored again has the same batches and the same rounding. A
    row longer than the budget gets its own batch.
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


def padded_tokens(lengths: Int64s, batch: Int64s) -> int:
    return len(batch) * int(lengths[batch].max())
