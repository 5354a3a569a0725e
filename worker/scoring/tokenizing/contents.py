"""The ids of the beginnings of texts, without special tokens. Knows nothing of models or batches."""

import copy
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.precut import cut, may_cut, normalizing
from worker.scoring.tokenizing.tokens import Tokens, flat, joined

# The tokenizer processes the whole text before it truncates, so long texts are cut first.
_CHARS_PER_TOKEN = 6  # English has 4 to 5, so the first look fills the model for nearly every long text
_WIDEN = 4  # a text that does not fill the model is looked at again, this many times as far
MAX_CHARS = 1 << 21  # characters of a text that are looked at, at most; limits memory
_CALL_CHARS = 1 << 22  # characters per call of the tokenizer; limits memory
_ROW_CHARS = 1 << 12  # added to the size of each text, so that a call has at most 1,024 texts


class ContentEncoder:
    """Tokenizes the beginnings of texts with the Rust tokenizer: at most `room` ids of each, without special tokens.

    Changes the truncation and padding of the tokenizer that it is given.
    """

    def __init__(self, backend: Any, *, room: int) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._encode = getattr(backend, "encode_batch_fast", backend.encode_batch)  # fast: without offsets
        self._normalize = normalizing(backend)
        self._room = room
        self._first_look = min(_CHARS_PER_TOKEN * room, MAX_CHARS) if may_cut(backend) else MAX_CHARS

    def encode(self, texts: pa.Array) -> Tokens:
        """Texts whose beginning does not fill the model are looked at again, further."""
        looks: list[Tokens] = []
        latest = np.zeros(len(texts), np.int64)
        rows, limit, seen = np.arange(len(texts)), self._first_look, 0
        while len(rows):
            contents, enough = self._look(texts, limit)
            looks.append(contents)
            latest[rows] = np.arange(seen, seen + len(rows))
            seen += len(rows)
            rows, texts, limit = rows[~enough], texts.filter(pa.array(~enough)), min(_WIDEN * limit, MAX_CHARS)
        return joined(looks).take(latest)

    def _look(self, texts: pa.Array, limit: int) -> tuple[Tokens, npt.NDArray[np.bool_]]:
        """The content ids of each text's first `limit` characters, and whether they equal those of the whole text."""
        lengths = pc.utf8_length(texts).to_numpy()
        is_long = lengths > limit
        contents = []
        for start, stop in calls(np.minimum(lengths, limit)):
            heads = pc.utf8_slice_codeunits(texts.slice(start, stop - start), 0, limit).to_pylist()
            if limit < MAX_CHARS:
                for row in np.flatnonzero(is_long[start:stop]).tolist():
                    heads[row] = cut(heads[row], limit, self._normalize)
            encodings = self._encode(heads, add_special_tokens=False)
            contents.append(flat([encoding.ids[: self._room] for encoding in encodings]))
        tokens = joined(contents)
        return tokens, ~is_long | (tokens.lengths == self._room) | (limit == MAX_CHARS)


def calls(chars: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The range of texts for each call of the tokenizer. A text of any length gets a call."""
    call = np.cumsum(chars + _ROW_CHARS) // _CALL_CHARS
    starts = np.flatnonzero(np.diff(call, prepend=-1))
    return pairwise([*starts.tolist(), len(chars)])


# A copy of a tokenizer that gives the same ids, for settings of its own: a call changes a tokenizer's truncation and padding.
#
# `copy.deepcopy` writes the tokenizer as JSON and reads it again, which changes the last bit of some scores of a Unigram model
# (XLM-R, DeBERTa-v3). Of two splits of a word that are equally good, it may then choose the other one.

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "encode_special_tokens")


def twin_of(tokenizer: Any) -> Any:
    """The twin of a transformers tokenizer, not truncating or padding yet. The vocabulary is shared, if it is not in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return copy.deepcopy(tokenizer, None if backend is None else {id(backend): _twin(backend)})


def _twin(backend: Any) -> Any:
    """Of a tokenizers.Tokenizer."""
    twin = type(backend)(backend.model)
    for part in _PARTS:
        setattr(twin, part, getattr(backend, part))
    added = sorted(backend.get_added_tokens_decoder().items())
    for special, tokens in groupby((token for _, token in added), key=lambda token: token.special):
        (twin.add_special_tokens if special else twin.add_tokens)(list(tokens))
    return twin
