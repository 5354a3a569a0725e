"""Texts to token ids, truncated as `pipeline(..., truncation=True)` does. Knows nothing of models or batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Truncation does not spare the tokenizer the rest of a text, in time or memory, so long texts are cut before it.
# A cut this wide leaves far more than `max_tokens` tokens in all but odd texts, for which it is widened.
_CHARS_PER_TOKEN = 64
_WIDEN = 8
_MAX_CHARS = 1 << 21  # a text whose first 2 million characters do not fill the model is scored by those


class TextTokenizer:
    """A transformers tokenizer that gives one int32 array of ids a text, special tokens included."""

    def __init__(self, tokenizer: Any, *, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        ids: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)] * len(texts)
        todo = list(range(len(texts)))
        limit = min(_CHARS_PER_TOKEN * self.max_tokens, _MAX_CHARS)
        while todo:
            encoded = self._encode([_cut(texts[row], limit) for row in todo])
            for row, row_ids in zip(todo, encoded["input_ids"], strict=True):
                ids[row] = np.asarray(row_ids, dtype=np.int32)
            if limit >= _MAX_CHARS:
                break
            cut = [(place, row) for place, row in enumerate(todo) if len(texts[row]) > limit]
            todo = [row for place, row in cut if not self._was_enough(encoded, place)]
            limit = min(limit * _WIDEN, _MAX_CHARS)
        return ids

    def _encode(self, texts: list[str]) -> Any:
        return self._tokenizer(
            texts,
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )

    def _was_enough(self, encoded: Any, place: int) -> bool:
        """Whether a cut text gave twice the tokens that are kept: its last word, which the cut may change, is not in them."""
        if encoded.encodings is None:  # a tokenizer in Python, which does not tell what it left out
            return len(encoded["input_ids"][place]) >= self.max_tokens
        return len(encoded.encodings[place].overflowing) > 1


def _cut(text: str, limit: int) -> str:
    """The first `limit` characters, without the word that the limit cuts in two."""
    if len(text) <= limit:
        return text
    for end in range(limit, limit // 2, -1):
        if text[end].isspace():
            return text[:end]
    return text[:limit]
