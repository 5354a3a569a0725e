"""Turn long texts into passages of token ids, as long as the model takes. Knows nothing of models.

`head+tail` reads the beginning and the end of a text, `head+middle+tail` its middle too, and `stride:N` all of it: a passage
starts every N tokens, and the last one earlier, so that it ends with the text. A text that fits the model is one passage.
Passages are put together when their batch is due.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from worker.scoring.tokenizing.contents import ContentEncoder
from worker.scoring.tokenizing.frame import Frame, find_frame
from worker.scoring.tokenizing.tokens import Counts, Tokens, offsets_of, ranges
from worker.scoring.tokenizing.twin import twin_of

WHOLE = 1 << 30  # tokens of a text


@dataclass(frozen=True, kw_only=True)
class PassageTokens:
    """Passages of texts, which may overlap. They get their special tokens when they are taken."""

    contents: Tokens  # of the whole texts, without special tokens
    frame: Frame
    starts: Counts  # of each passage's content in `contents.ids`
    lengths: Counts  # of each passage's content

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def batch_lengths(self) -> Counts:
        return self.lengths + len(self.frame)

    def take(self, passages: Counts) -> Tokens:
        lengths = self.lengths[passages]
        ids = self.contents.ids[ranges(self.starts[passages], lengths)]
        return self.frame.around(Tokens(ids=ids, offsets=offsets_of(lengths)))


class PassageEncoder:
    """Encodes each text as one or more passages of at most `max_tokens` tokens.

    Raises ValueError for a tokenizer that does more than add special tokens at both ends of a text, and for a stride that would
    leave out tokens.
    """

    def __init__(self, tokenizer: Any, passages: str, *, max_tokens: int) -> None:
        ours = twin_of(tokenizer)
        frame = find_frame(ours)
        if frame is None or max_tokens <= len(frame):
            raise ValueError("its tokenizer does not only add special tokens at the ends of a text")
        self._frame = frame
        self._room = max_tokens - len(frame)
        check_stride(passages, room=self._room, beside="the special tokens")
        self._passages = passages
        self._contents = ContentEncoder(ours.backend_tokenizer, room=WHOLE)

    def encode(self, texts: pa.LargeStringArray) -> tuple[PassageTokens, Counts]:
        contents = self._contents.encode(texts)
        starts, lengths, offsets = passages_of(contents, self._passages, room=self._room)
        return PassageTokens(contents=contents, frame=self._frame, starts=starts, lengths=lengths), offsets


def passages_of(contents: Tokens, passages: str, *, room: int) -> tuple[Counts, Counts, Counts]:
    """Where each passage starts in `contents.ids`, its length, and the offsets of each text's passages."""
    places, counts = places_of_passages(contents.lengths, passages, room=room)
    text_of = np.repeat(np.arange(len(contents)), counts)
    lengths = np.minimum(contents.lengths[text_of] - places, room)
    return contents.offsets[text_of] + places, lengths, offsets_of(counts)


def check_stride(passages: str, *, room: int, beside: str) -> None:
    """Raises ValueError for a stride that would leave out tokens between passages."""
    stride = int(passages.partition(":")[2] or 0)
    if stride > room:
        raise ValueError(f"{passages} would leave out tokens: beside {beside}, {room} fit")


def places_of_passages(lengths: Counts, passages: str, *, room: int) -> tuple[Counts, Counts]:
    """Where the passages of texts of these lengths start in their text, and how many passages each text has."""
    kind, _, stride = passages.partition(":")
    beyond = np.maximum(lengths - room, 0)  # tokens that the first passage does not hold
    match kind:
        case "head+tail":
            steps, counts = beyond, 1 + (beyond > 0)
        case "head+middle+tail":
            steps, counts = -(-beyond // 2), 1 + (beyond > 0) + (beyond > room)
            steps = np.where(beyond > room, steps, beyond)
        case "stride":
            steps, counts = np.full_like(lengths, int(stride)), 1 - (-beyond // int(stride))
        case _:
            raise ValueError(f"There are no passages called {passages!r}.")
    number = ranges(np.zeros_like(counts), counts)  # of each passage in its text
    places: Counts = np.minimum(number * np.repeat(steps, counts), np.repeat(beyond, counts))
    return places, counts
