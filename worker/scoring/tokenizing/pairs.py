"""Turn pairs into token ids: each text with each of a few fixed second texts. Truncates the text, never the second one.

The ids are those of `tokenizer(text, second, truncation="only_first")`. A text is tokenized once, however many second texts
there are, and a pair is put together when its batch is due, so that memory holds each text once. Knows nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.contents import MAX_CHARS, ContentEncoder, calls, twin_of
from worker.scoring.tokenizing.passages import WHOLE, check_stride, passages_of
from worker.scoring.tokenizing.tokens import Counts, Ids, Sequences, Tokens, flat, joined, offsets_of, ranges

_PROBE = "Nine words"
_SHOWN_CHARS = 60  # of a second text, in an error


class TooLong(ValueError):
    """A second text leaves no room for a text."""


class PairEncoder(Protocol):
    def encode(self, texts: pa.Array) -> Sequences:
        """The pairs of the first text, then those of the next. `texts` must not contain nulls."""


def pair_encoder(tokenizer: Any, seconds: Sequence[str], *, max_tokens: int) -> PairEncoder:
    """The fast encoder if it joins the pairs as the tokenizer does. The tokenizer is not changed.

    Raises TooLong, with the second text, if it leaves no room for a text.
    """
    ours = twin_of(tokenizer)
    frames = _find_frames(ours, seconds, max_tokens)
    return (
        _FastPairs(ours.backend_tokenizer, frames, max_tokens)
        if frames
        else _PlainPairs(ours, list(seconds), max_tokens)
    )


class PassagePairEncoder:
    """Each passage of a text with each second text. All second texts get the same passages, so the longest sets their length.

    Raises TooLong as `pair_encoder` does, and ValueError for a tokenizer that does more than add tokens around the two texts.
    """

    def __init__(self, tokenizer: Any, seconds: Sequence[str], passages: str, *, max_tokens: int) -> None:
        ours = twin_of(tokenizer)
        frames = _find_frames(ours, seconds, max_tokens)
        if not frames:
            raise ValueError("its tokenizer does not only add special tokens around the texts of a pair")
        self._head, self._tails = _heads_and_tails(frames)
        self._room = max_tokens - len(self._head) - int(self._tails.lengths.max())
        check_stride(passages, room=self._room, beside="the longest hypothesis")
        self._passages = passages
        self._contents = ContentEncoder(ours.backend_tokenizer, room=WHOLE)

    def encode(self, texts: pa.Array) -> tuple["PairTokens", Counts]:
        """The pairs of the first passage, then those of the next; and the offsets of each text's passages."""
        contents = self._contents.encode(texts)
        starts, lengths, offsets = passages_of(contents, self._passages, room=self._room)
        room = np.full(len(self._tails), self._room)
        pairs = PairTokens(
            ids=contents.ids, starts=starts, lengths=lengths, head=self._head, tails=self._tails, room=room
        )
        return pairs, offsets


@dataclass(frozen=True, kw_only=True)
class PairTokens:
    """Pairs that are put together when they are taken. Pair i is of text `i // seconds`, with second text `i % seconds`.

    A text here may be a passage of one.
    """

    ids: Ids  # of all texts, without special tokens, long enough for the shortest tail
    starts: Counts  # of each text in `ids`
    lengths: Counts  # of each text
    head: Ids  # before each text
    tails: Tokens  # after a text: separators and the second text
    room: Counts  # for a text, by second text

    def __len__(self) -> int:
        return len(self.starts) * len(self.tails)

    @property
    def batch_lengths(self) -> Counts:
        """Those of each text's longest pair, so that the pairs of a text are neighbours in a batch."""
        kept = np.minimum(self.lengths[:, None], self.room)
        longest = (kept + self.tails.lengths).max(axis=1) + len(self.head)
        return np.repeat(longest, len(self.tails))

    def take(self, pairs: Counts) -> Tokens:
        texts, seconds = np.divmod(pairs, len(self.tails))
        kept = np.minimum(self.lengths[texts], self.room[seconds])
        tail_lengths = self.tails.lengths[seconds]
        offsets = offsets_of(len(self.head) + kept + tail_lengths)
        starts, ends = offsets[:-1], offsets[1:]
        ids = np.empty(offsets[-1], np.int32)
        for place, token in enumerate(self.head):
            ids[starts + place] = token
        ids[ranges(starts + len(self.head), kept)] = self.ids[ranges(self.starts[texts], kept)]
        in_tails = ranges(ends - tail_lengths, tail_lengths)
        from_tails = ranges(self.tails.offsets[seconds], tail_lengths)
        ids[in_tails] = self.tails.ids[from_tails]
        if self.tails.types is None:
            return Tokens(ids=ids, offsets=offsets)
        types = np.zeros(len(ids), np.int8)
        types[in_tails] = self.tails.types[from_tails]
        return Tokens(ids=ids, offsets=offsets, types=types)


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """What stands before and after any text when its pair is tokenized."""

    head: list[int]
    tail: list[int]
    tail_types: list[int] | None  # token types of the tail; those of head and text are 0


class _FastPairs:
    """Tokenizes each text once with the Rust tokenizer, and adds heads and tails with numpy."""

    def __init__(self, backend: Any, frames: list[_Frame], max_tokens: int) -> None:
        self._head, self._tails = _heads_and_tails(frames)
        self._room = max_tokens - len(self._head) - self._tails.lengths
        self._contents = ContentEncoder(backend, room=int(self._room.max()))

    def encode(self, texts: pa.Array) -> PairTokens:
        contents = self._contents.encode(texts)
        return PairTokens(
            ids=contents.ids,
            starts=contents.offsets[:-1],
            lengths=contents.lengths,
            head=self._head,
            tails=self._tails,
            room=self._room,
        )


class _PlainPairs:
    """Calls the tokenizer itself with each pair, for tokenizers that the fast encoder does not support."""

    def __init__(self, tokenizer: Any, seconds: list[str], max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._seconds = seconds
        self._max_tokens = max_tokens

    def encode(self, texts: pa.Array) -> Tokens:
        lengths = np.minimum(pc.utf8_length(texts).to_numpy(), MAX_CHARS)
        return joined([self._call(texts.slice(start, stop - start)) for start, stop in calls(lengths)])

    def _call(self, texts: pa.Array) -> Tokens:
        heads = pc.utf8_slice_codeunits(texts, 0, MAX_CHARS).to_pylist()
        firsts = [head for head in heads for _ in self._seconds]
        encoded = self._tokenizer(
            firsts,
            self._seconds * len(heads),
            truncation="only_first",
            max_length=self._max_tokens,
            padding=False,
            return_attention_mask=False,
            verbose=False,
        )
        return flat(encoded["input_ids"], encoded.get("token_type_ids"))


def _heads_and_tails(frames: Sequence[_Frame]) -> tuple[Ids, Tokens]:
    tails = flat([frame.tail for frame in frames], [frame.tail_types for frame in frames])
    return np.array(frames[0].head, np.int32), tails


def _find_frames(tokenizer: Any, seconds: Sequence[str], max_tokens: int) -> list[_Frame] | None:
    """The frame of each second text; None if one cannot be found. Raises TooLong if one leaves no room for a text."""
    frames = [_find_frame(tokenizer, second) for second in seconds]
    for second, length in zip(seconds, _least_lengths(tokenizer, seconds), strict=True):
        if length >= max_tokens:
            raise TooLong(
                f"{shorten(second, _SHOWN_CHARS)!r} has {length} tokens, and the model takes {max_tokens} together with the text."
            )
    found = [frame for frame in frames if frame]
    return found if len(found) == len(frames) else None


def _find_frame(tokenizer: Any, second: str) -> _Frame | None:
    """None if the tokenizer is written in Python, truncates on the left, or does more than add tokens around the texts."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return None
    empty, filled = (tokenizer(text, second, truncation=False, padding=False, verbose=False) for text in ("", _PROBE))
    ids, content = filled["input_ids"], backend.encode(_PROBE, add_special_tokens=False).ids
    types = filled.get("token_type_ids", [0] * len(ids))
    for start in range(len(ids) - len(content) + 1):
        head, tail = ids[:start], ids[start + len(content) :]
        if [*head, *content, *tail] == ids and [*head, *tail] == empty["input_ids"] and not any(types[: -len(tail)]):
            return _Frame(head=head, tail=tail, tail_types=types[-len(tail) :] if any(types) else None)
    return None


def _least_lengths(tokenizer: Any, seconds: Sequence[str]) -> list[int]:
    """The number of tokens of each second text with an empty text."""
    empty = [""] * len(seconds)
    return [len(ids) for ids in tokenizer(empty, list(seconds), truncation=False, verbose=False)["input_ids"]]
