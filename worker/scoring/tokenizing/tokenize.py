"""Turn texts into token ids, truncated as by `pipeline(..., truncation=True)`. Knows nothing of models or batches."""

import hashlib
import json
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.contents import MAX_CHARS, ContentEncoder, Frame, calls, find_frame, twin_of
from worker.scoring.tokenizing.pairs import PairEncoder, PassagePairEncoder, pair_encoder
from worker.scoring.tokenizing.passages import FinePdfsEncoder, PassageEncoder
from worker.scoring.tokenizing.tokens import Tokens, flat, joined


class TextTokenizer:
    """Wraps a transformers tokenizer and returns flat int32 ids, truncated as by `pipeline(..., truncation=True)`.

    The ids are identical to the pipeline's, with one exception: only the first 2 Mi characters of a text are looked at,
    wherever that cuts it, because the tokenizer takes a hundred times the memory of the text. The tokenizer that is
    passed in is not changed.
    """

    def __init__(
        self, tokenizer: Any, *, max_tokens: int, model_tokens: int | None = None, pairs: bool = False
    ) -> None:
        self.max_tokens = max_tokens
        self._model_tokens = model_tokens or max_tokens  # what the model takes, if `max_tokens` is less
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.takes_token_types = "token_type_ids" in tokenizer.model_input_names
        self._tokenizer = tokenizer
        ours = twin_of(tokenizer)  # a call changes the tokenizer's truncation and padding
        frame = None if pairs else find_frame(ours)
        if frame is None or max_tokens <= len(frame):
            self._encoder: _PlainEncoder | _FastEncoder = _PlainEncoder(ours, max_tokens)
        else:
            self._encoder = _FastEncoder(ours.backend_tokenizer, frame, max_tokens)

    @cached_property
    def identity(self) -> Hashable:
        """Tokenizers of equal identities give equal ids. One that is written in Python equals only itself."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return id(self)
        rules = {**json.loads(backend.to_str()), "truncation": None, "padding": None}  # these two change with calls
        digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()
        return digest, self.max_tokens, self._tokenizer.truncation_side, self.pad_id, self.takes_token_types

    def encode(self, texts: pa.Array) -> Tokens:
        """The ids of the texts or pairs, including special tokens. `texts` must not contain nulls."""
        return self._encoder.encode(texts)

    def limited_to(self, max_tokens: int) -> "TextTokenizer":
        """A tokenizer that keeps fewer tokens. Raises ValueError if the model does not take as many, or has no room for one."""
        special = len(self._tokenizer("", truncation=False, verbose=False)["input_ids"])
        if not special < max_tokens <= self.max_tokens:
            raise ValueError(f"The model takes {special + 1} to {self.max_tokens} tokens, not {max_tokens}.")
        return TextTokenizer(self._tokenizer, max_tokens=max_tokens, model_tokens=self._model_tokens)

    def of_pairs(self) -> "TextTokenizer":
        """A tokenizer of the arrays that `tokenizing/texts.py` makes of two texts. It truncates the longer text of a pair."""
        return TextTokenizer(self._tokenizer, max_tokens=self.max_tokens, pairs=True)

    def in_passages(self, passages: str) -> PassageEncoder | FinePdfsEncoder:
        """An encoder of passages of each text. Raises ValueError if the tokenizer does not allow it."""
        if passages == "finepdfs":
            whole = TextTokenizer(self._tokenizer, max_tokens=self._model_tokens)
            return FinePdfsEncoder(self._tokenizer, max_tokens=self.max_tokens, encode=whole.encode)
        return PassageEncoder(self._tokenizer, passages, max_tokens=self.max_tokens)

    def paired_with(self, seconds: Sequence[str]) -> PairEncoder:
        """An encoder of pairs of a text and each of `seconds`. Raises TooLong if one leaves no room for a text."""
        return pair_encoder(self._tokenizer, seconds, max_tokens=self.max_tokens)

    def in_passages_with(self, seconds: Sequence[str], passages: str) -> PassagePairEncoder:
        """An encoder of each passage of a text with each of `seconds`. Raises ValueError if it is not possible."""
        return PassagePairEncoder(self._tokenizer, seconds, passages, max_tokens=self.max_tokens)


class _FastEncoder:
    """Adds the special tokens with numpy."""

    def __init__(self, backend: Any, frame: Frame, max_tokens: int) -> None:
        self._contents = ContentEncoder(backend, room=max_tokens - len(frame))
        self._frame = frame

    def encode(self, texts: pa.Array) -> Tokens:
        return self._frame.around(self._contents.encode(texts))


class _PlainEncoder:
    """Calls the tokenizer itself, for pairs and for tokenizers that the fast encoder does not support."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens

    def encode(self, texts: pa.Array) -> Tokens:
        columns = texts.flatten() if isinstance(texts, pa.StructArray) else [texts]
        lengths = sum(np.minimum(pc.utf8_length(column).to_numpy(), MAX_CHARS) for column in columns)
        return joined([self._call([column[start:stop] for column in columns]) for start, stop in calls(lengths)])

    def _call(self, columns: Sequence[pa.Array]) -> Tokens:
        encoded = self._tokenizer(
            *(pc.utf8_slice_codeunits(column, 0, MAX_CHARS).to_pylist() for column in columns),
            truncation=True,
            max_length=self._max_tokens,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=len(columns) > 1 and "token_type_ids" in self._tokenizer.model_input_names,
            verbose=False,
        )
        return flat(encoded["input_ids"], encoded.get("token_type_ids"))


# Convert texts of any Arrow type to one plain array.

Texts: TypeAlias = pa.ChunkedArray | pa.Array | Sequence[str | None]


def plain_texts(texts: Texts) -> pa.LargeStringArray | pa.StructArray:
    """Invalid UTF-8, which Parquet allows, becomes U+FFFD. Raises TypeError for a single text."""
    if isinstance(texts, (str, bytes)):  # a string is a sequence too, and each of its characters would be scored
        raise TypeError(f"Expected a list of texts, not a single {type(texts).__name__}. Pass [text].")
    if not isinstance(texts, (pa.Array, pa.ChunkedArray)):
        return pa.array(texts, pa.large_string())
    if isinstance(texts, pa.StructArray):  # pairs, made of plain texts
        return texts
    column = texts.cast(pa.large_string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary()).to_pylist()
        return pa.array([text if text is None else text.decode(errors="replace") for text in raw], pa.large_string())
    return column
