"""Turn texts into token ids, truncated as by `pipeline(..., truncation=True)`. Knows nothing of models or batches."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.precut import cut, may_cut, normalizing
from worker.scoring.tokenizing.tokens import Tokens

# The tokenizer processes the whole text before it truncates, so long texts are cut first.
_CHARS_PER_TOKEN = 6  # English has 4 to 5, so the first look fills the model for nearly every long text
_WIDEN = 4  # a text that does not fill the model is looked at again, this many times as far
_MAX_CHARS = 1 << 21  # characters of a text that are looked at, at most; limits memory
_CALL_CHARS = 1 << 22  # characters per call of the tokenizer; limits memory
_ROW_CHARS = 1 << 12  # added to the size of each text, so that a call has at most 1,024 texts


class TextTokenizer:
    """Wraps a transformers tokenizer and returns flat int32 ids, truncated as by `pipeline(..., truncation=True)`.

    The ids are identical to the pipeline's, with one exception: only the first 2 Mi characters of a text are looked at,
    wherever that cuts it, because the tokenizer takes a hundred times the memory of the text. The tokenizer that is
    passed in is not changed.
    """

    def __init__(self, tokenizer: Any, *, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.takes_token_types = "token_type_ids" in tokenizer.model_input_names
        ours = copy.deepcopy(tokenizer)  # a call changes the tokenizer's truncation and padding
        frame = _find_frame(ours)
        if frame is None or max_tokens <= len(frame):
            self._encoder: _PlainEncoder | _FastEncoder = _PlainEncoder(ours, max_tokens)
        else:
            self._encoder = _FastEncoder(ours.backend_tokenizer, frame, max_tokens)

    def encode(self, texts: pa.Array) -> Tokens:
        """The ids of the texts, including special tokens. `texts` must not contain nulls."""
        return self._encoder.encode(texts)


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """The special tokens before and after every text."""

    prefix: list[int]
    suffix: list[int]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def around(self, contents: Tokens) -> Tokens:
        offsets = contents.offsets + len(self) * np.arange(len(contents) + 1)
        ids = np.empty(offsets[-1], np.int32)
        is_content = np.ones(len(ids), np.bool_)
        starts, ends = offsets[:-1], offsets[1:]
        places = [starts + place for place in range(len(self.prefix))]
        places += [ends - place for place in range(len(self.suffix), 0, -1)]
        for place, token in zip(places, self.prefix + self.suffix, strict=True):
            ids[place] = token
            is_content[place] = False
        ids[is_content] = contents.ids
        return Tokens(ids=ids, offsets=offsets)


def _find_frame(tokenizer: Any) -> _Frame | None:
    """None if the tokenizer is written in Python, truncates on the left, or does more than add tokens at both ends."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return None
    empty, framed = tokenizer(["", "Nine words"], truncation=False, padding=False, verbose=False)["input_ids"]
    bare = backend.encode("Nine words", add_special_tokens=False).ids
    for start in range(len(framed) - len(bare) + 1):
        frame = _Frame(prefix=framed[:start], suffix=framed[start + len(bare) :])
        if [*frame.prefix, *bare, *frame.suffix] == framed and frame.prefix + frame.suffix == empty:
            return frame
    return None


class _FastEncoder:
    """Tokenizes the beginnings of texts with the Rust tokenizer and adds the special tokens with numpy."""

    def __init__(self, backend: Any, frame: _Frame, max_tokens: int) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._encode = getattr(backend, "encode_batch_fast", backend.encode_batch)  # fast: without offsets
        self._normalize = normalizing(backend)
        self._frame = frame
        self._room = max_tokens - len(frame)
        self._first_look = min(_CHARS_PER_TOKEN * max_tokens, _MAX_CHARS) if may_cut(backend) else _MAX_CHARS

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
            rows, texts, limit = rows[~enough], texts.filter(pa.array(~enough)), min(_WIDEN * limit, _MAX_CHARS)
        return self._frame.around(_joined(looks).take(latest))

    def _look(self, texts: pa.Array, limit: int) -> tuple[Tokens, npt.NDArray[np.bool_]]:
        """The content ids of each text's first `limit` characters, and whether they equal those of the whole text."""
        lengths = pc.utf8_length(texts).to_numpy()
        is_long = lengths > limit
        contents = []
        for start, stop in _calls(np.minimum(lengths, limit)):
            heads = pc.utf8_slice_codeunits(texts.slice(start, stop - start), 0, limit).to_pylist()
            if limit < _MAX_CHARS:
                for row in np.flatnonzero(is_long[start:stop]).tolist():
                    heads[row] = cut(heads[row], limit, self._normalize)
            encodings = self._encode(heads, add_special_tokens=False)
            contents.append(_flat([encoding.ids[: self._room] for encoding in encodings]))
        tokens = _joined(contents)
        return tokens, ~is_long | (tokens.lengths == self._room) | (limit == _MAX_CHARS)


class _PlainEncoder:
    """Calls the tokenizer itself, for tokenizers that the fast encoder does not support."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens

    def encode(self, texts: pa.Array) -> Tokens:
        lengths = np.minimum(pc.utf8_length(texts).to_numpy(), _MAX_CHARS)
        return _joined([self._call(texts.slice(start, stop - start)) for start, stop in _calls(lengths)])

    def _call(self, texts: pa.Array) -> Tokens:
        encoded = self._tokenizer(
            pc.utf8_slice_codeunits(texts, 0, _MAX_CHARS).to_pylist(),
            truncation=True,
            max_length=self._max_tokens,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return _flat(encoded["input_ids"])


def _calls(chars: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The range of texts for each call of the tokenizer. A text of any length gets a call."""
    call = np.cumsum(chars + _ROW_CHARS) // _CALL_CHARS
    starts = np.flatnonzero(np.diff(call, prepend=-1))
    return pairwise([*starts.tolist(), len(chars)])


def _flat(rows: list[list[int]]) -> Tokens:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return Tokens(ids=np.fromiter(chain.from_iterable(rows), np.int32, offsets[-1]), offsets=offsets)


def _joined(parts: list[Tokens]) -> Tokens:
    lengths = [part.lengths for part in parts]
    return Tokens(
        ids=np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]),
        offsets=np.cumsum(np.concatenate([[0], *lengths])),
    )
