"""The token ids of many texts in one flat array. Knows nothing of tokenizers or models."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Text i is `ids[offsets[i]:offsets[i + 1]]`, including special tokens."""

    ids: npt.NDArray[np.int32]  # shape (tokens,)
    offsets: npt.NDArray[np.int64]  # shape (texts + 1,), starting at 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, text: int) -> npt.NDArray[np.int32]:
        return self.ids[self.offsets[text] : self.offsets[text + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, texts: npt.NDArray[np.int64]) -> "Tokens":
        """Some of the texts, in the order given."""
        lengths = self.lengths[texts]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[texts] - offsets[:-1], lengths)
        return Tokens(ids=self.ids[places], offsets=offsets)
