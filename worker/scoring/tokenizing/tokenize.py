"""Turn texts into token ids, truncated as in `pipeline(..., truncation=True)`. Knows nothing of models or batches."""

import hashlib
import json
from collections.abc import Hashable, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.worker.scoring.tokenizing.contents import MAX_CHARS, ContentEncoder, calls, twin_of
from shardsift.worker.scoring.tokenizing.frames import (
    ContentsOf,
    FramedEncoder,
    SequenceEncoder,
    find_frames,
)
from shardsift.worker.scoring.tokenizing.passages import FinePdfsEncoder
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses
from shardsift.worker.scoring.tokenizing.tokens import Int64s, Tokens, flat, joined


class TextTokenizer:
    """Wraps a transformers tokenizer and returns flat int32 ids, truncated as in `pipeline(..., truncation=True)`.

    The ids equal the pipeline's, with one exception: only the first 2 Mi characters of a text are tokenized, because
    the tokenizer takes a hundred times the memory of the text. That cut may be within a word. Does not change the
    tokenizer that is passed in.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_tokens: int,
        model_tokens: int | None = None,
        pairs: bool = False,
        processes: TokenizerProcesses | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self._processes = processes
        self._model_tokens = model_tokens or max_tokens  # the model's own limit, which may be higher than `max_tokens`
        self._tokenizer = tokenizer
        ours = twin_of(tokenizer)  # a copy, because calls change truncation and padding
        frames = None if pairs else find_frames(ours, [None], max_tokens)
        self._encoder: SequenceEncoder = (
            FramedEncoder(self._contents(ours), frames, max_tokens=max_tokens)
            if frames
            else _PlainEncoder(ours, max_tokens)
        )

    @cached_property
    def identity(self) -> Hashable:
        """A key of the ids that texts get: tokenizers with equal keys give equal ids.

        A tokenizer written in Python equals only itself.
        """
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return id(self)
        rules = {**json.loads(backend.to_str()), "truncation": None, "padding": None}  # they change with calls
        digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()
        inputs = tuple(self._tokenizer.model_input_names)
        return digest, self.max_tokens, self._tokenizer.truncation_side, self._tokenizer.pad_token_id, inputs

    def encode(self, texts: pa.Array) -> Tokens:
        """Tokenize texts or pairs, with special tokens. `texts` must not contain nulls."""
        sequences, _ = self._encoder.encode(texts)
        return sequences.take(np.arange(len(sequences)))

    def limited_to(self, max_tokens: int) -> "TextTokenizer":
        """Make a tokenizer that truncates to `max_tokens` tokens, special tokens included.

        Raises ValueError if `max_tokens` is above this tokenizer's limit, or leaves no room for a text.
        """
        special = len(self._tokenizer("", truncation=False, verbose=False)["input_ids"])
        if not special < max_tokens <= self.max_tokens:
            raise ValueError(f"The model takes {special + 1} to {self.max_tokens} tokens, not {max_tokens}.")
        return self._changed(max_tokens, self._processes)

    @property
    def can_use_processes(self) -> bool:
        return isinstance(self._encoder, FramedEncoder)

    def in_processes(self, processes: TokenizerProcesses) -> "TextTokenizer":
        """Make a tokenizer that gives the same ids, and uses these processes if it can."""
        return self._changed(self.max_tokens, processes)

    def of_pairs(self) -> "TextTokenizer":
        """Make a tokenizer for pairs, see `shardsift/fleet/run/text.py`. The longer text of a pair is truncated."""
        return TextTokenizer(self._tokenizer, max_tokens=self.max_tokens, pairs=True)

    def sequences(self, passages: str = "head", seconds: Sequence[str] = ()) -> SequenceEncoder:
        """Make an encoder of each text's passages, paired with each of `seconds` if there are any.

        `passages` is `head`, `head+tail`, `head+middle+tail`, `stride:N` or `finepdfs`. Raises TooLong if one of
        `seconds` leaves no room for a text. Raises ValueError if N is so large that tokens would be skipped, or if
        `passages` is not `head` and the tokenizer does more than add special tokens around a text.
        """
        ours = twin_of(self._tokenizer)
        frames = find_frames(ours, seconds or [None], self.max_tokens)
        if frames is None and passages == "head":
            return _PlainEncoder(ours, self.max_tokens, seconds)
        if frames is None:
            raise ValueError("its tokenizer does more than add special tokens around a text")
        if passages == "finepdfs":
            whole = self._changed(self._model_tokens, self._processes)
            room = self.max_tokens - int(frames.lengths[0])
            return FinePdfsEncoder(self._tokenizer, room=room, encode=whole.encode)
        return FramedEncoder(self._contents(ours), frames, max_tokens=self.max_tokens, passages=passages)

    def _changed(self, max_tokens: int, processes: TokenizerProcesses | None) -> "TextTokenizer":
        return TextTokenizer(
            self._tokenizer, max_tokens=max_tokens, model_tokens=self._model_tokens, processes=processes
        )

    def _contents(self, ours: Any) -> ContentsOf:
        if processes := self._processes:
            return lambda room: partial(processes.encode, room=room)
        return lambda room: ContentEncoder(ours.backend_tokenizer, room=room).encode


class _PlainEncoder:
    """Calls the tokenizer itself, for pairs from two columns and for tokenizers that `FramedEncoder` does not support.

    With `seconds`, each text is paired with each second text, and only the first text of a pair is truncated.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, seconds: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._seconds = list(seconds)

    def encode(self, texts: pa.Array) -> tuple[Tokens, Int64s]:
        columns = texts.flatten() if isinstance(texts, pa.StructArray) else [texts]
        lengths = sum(np.minimum(pc.utf8_length(column).to_numpy(), MAX_CHARS) for column in columns)
        tokens = joined([self._call([column[start:stop] for column in columns]) for start, stop in calls(lengths)])
        return tokens, np.arange(len(texts) + 1) * max(1, len(self._seconds))

    def _call(self, columns: Sequence[pa.Array]) -> Tokens:
        firsts, *others = (pc.utf8_slice_codeunits(column, 0, MAX_CHARS).to_pylist() for column in columns)
        if self._seconds:
            others = [self._seconds * len(firsts)]
            firsts = [first for first in firsts for _ in self._seconds]
        encoded = self._tokenizer(
            firsts,
            *others,
            truncation="only_first" if self._seconds else True,
            max_length=self._max_tokens,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids="token_type_ids" in self._tokenizer.model_input_names,
            verbose=False,
        )
        return flat(encoded["input_ids"], encoded.get("token_type_ids"))


# Convert texts of any Arrow type to one plain array.

AnyTexts: TypeAlias = pa.ChunkedArray | pa.Array | Sequence[str | None]


def plain_texts(texts: AnyTexts) -> pa.LargeStringArray | pa.StructArray:
    """Convert texts to one array. Invalid UTF-8, which Parquet may contain, becomes U+FFFD.

    Raises TypeError for a single str.
    """
    if isinstance(texts, (str, bytes)):  # otherwise each character would be scored
        raise TypeError(f"Expected a list of texts, not a single {type(texts).__name__}. Pass [text].")
    if not isinstance(texts, (pa.Array, pa.ChunkedArray)):
        return pa.array(texts, pa.large_string())
    if isinstance(texts, pa.StructArray):  # pairs, which are made from plain texts
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
