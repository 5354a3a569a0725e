"""Put special tokens, and a fixed second text, around the ids of texts or of their passages. Knows nothing of models.

The tokens around a text are called its frame: the special tokens before and after it, and the second text if there is one.
The ids are those of `tokenizer(text)`, or of `tokenizer(text, second, truncation="only_first")`, which never truncates
the second text. A text is tokenized once, however many second texts and passages there are. A sequence is assembled
when its batch is due, so that each text is in memory once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from shardsift.worker.scoring.tokenizing.passages import WHOLE, passages_of
from shardsift.worker.scoring.tokenizing.tokens import Ids, Int64s, Sequences, Tokens, flat, joined, offsets_of, ranges

_PROBE = "Nine words"
_SHOWN_CHARS = 60  # of a second text in an error
ContentsOf = Callable[[int], Callable[[pa.Array], Tokens]]  # room → `encode` of a ContentEncoder


class TooLong(ValueError):
    """The second text of a pair is so long that the model has no room for the first one."""


@dataclass(frozen=True, kw_only=True)
class Frames:
    """The tokens to put around texts, one frame per second text. All frames begin with the same special tokens.

    Without second texts, there is one frame, of special tokens alone.
    """

    head: Ids  # before a text, in every frame
    tails: Tokens  # after a text, by frame: special tokens, and the second text if there is one

    @property
    def lengths(self) -> Int64s:
        return len(self.head) + self.tails.lengths


class SequenceEncoder(Protocol):
    def encode(self, texts: pa.Array, /) -> tuple[Sequences, Int64s]:
        """Return the sequences of all texts, and offsets: text i has the sequences `offsets[i]:offsets[i + 1]`.

        Each text has at least one sequence. `texts` has no nulls.
        """


class FramedEncoder:
    """Tokenizes texts, and puts each of `frames` around each text or each of its passages.

    With `passages` "head", a text is truncated to the tokens that fit in each frame. Otherwise, all frames get the same
    passages, so the longest frame determines their length. Raises ValueError for a stride that would leave out tokens.
    """

    def __init__(self, contents: ContentsOf, frames: Frames, *, max_tokens: int, passages: str = "head") -> None:
        self._frames = frames
        self._passages = passages
        self._room = max_tokens - frames.lengths
        if passages != "head":
            self._room = np.full_like(self._room, self._room.min())
            beside = "the special tokens" if len(self._room) == 1 else "the longest hypothesis"
            stride, room = int(passages.partition(":")[2] or 0), int(self._room[0])
            if stride > room:
                raise ValueError(f"{passages} would leave out tokens: beside {beside}, {room} fit")
        self._contents = contents(int(self._room.max()) if passages == "head" else WHOLE)

    def encode(self, texts: pa.Array) -> tuple["FramedTokens", Int64s]:
        """Return the sequences of all texts, ordered by text, passage and frame, and the offsets of the texts."""
        contents = self._contents(texts)
        starts, lengths, offsets = passages_of(contents, self._passages, room=int(self._room.max()))
        framed = FramedTokens(ids=contents.ids, starts=starts, lengths=lengths, frames=self._frames, room=self._room)
        return framed, len(self._frames.tails) * offsets


@dataclass(frozen=True, kw_only=True)
class FramedTokens:
    """Texts, and the frames to put around them: the special tokens before and after, and a second text if there is one.

    `take` assembles the sequences. With n frames, sequence i is text `i // n` in frame `i % n`.

    Here, a "text" may be a passage of a text. Passages may overlap.
    """

    ids: Ids  # of all texts, without frames; with passages "head", only as many as fit beside the shortest frame
    starts: Int64s  # of each text in `ids`
    lengths: Int64s  # of each text
    frames: Frames
    room: Int64s  # most tokens of a text, by frame

    def __len__(self) -> int:
        return len(self.starts) * len(self.frames.tails)

    @property
    def batch_lengths(self) -> Int64s:
        """The lengths to plan batches by, shape (sequences,).

        For each sequence, it is the length of the longest sequence of the same text, so that a text's sequences are
        batched together.
        """
        kept = np.minimum(self.lengths[:, None], self.room)
        return np.repeat((kept + self.frames.lengths).max(axis=1), len(self.frames.tails))

    def take(self, sequences: Int64s) -> Tokens:
        head, tails = self.frames.head, self.frames.tails
        texts, seconds = np.divmod(sequences, len(tails))
        kept = np.minimum(self.lengths[texts], self.room[seconds])
        tail_lengths = tails.lengths[seconds]
        offsets = offsets_of(len(head) + kept + tail_lengths)
        starts, ends = offsets[:-1], offsets[1:]
        ids = np.empty(offsets[-1], np.int32)
        for place, token in enumerate(head):
            ids[starts + place] = token
        ids[ranges(starts + len(head), kept)] = self.ids[ranges(self.starts[texts], kept)]
        in_tails = ranges(ends - tail_lengths, tail_lengths)
        from_tails = ranges(tails.offsets[seconds], tail_lengths)
        ids[in_tails] = tails.ids[from_tails]
        if tails.types is None:
            return Tokens(ids=ids, offsets=offsets)
        types = np.zeros(len(ids), np.int8)
        types[in_tails] = tails.types[from_tails]
        return Tokens(ids=ids, offsets=offsets, types=types)


def find_frames(tokenizer: Any, seconds: Sequence[str | None], max_tokens: int) -> Frames | None:
    """Find the frame for each of `seconds`: the tokens around a text that is paired with this second text.

    For None in `seconds`, it is the tokens around a text without a second text. Returns None if a frame cannot be found,
    or if special tokens alone leave no room for a text. Raises TooLong, which names the second text, if a second text
    leaves no room.
    """
    found = [_find_frame(tokenizer, second) for second in seconds]
    for second in filter(None, seconds):
        length = len(tokenizer("", second, truncation=False, verbose=False)["input_ids"])
        if length >= max_tokens:
            raise TooLong(
                f"{shorten(second, _SHOWN_CHARS)!r} has {length} tokens, and the model takes {max_tokens} together with the text."
            )
    each = [frame for frame in found if frame]
    if len(each) < len(found):
        return None
    frames = Frames(head=each[0].head, tails=joined([frame.tails for frame in each]))
    return frames if frames.lengths.max() < max_tokens else None


def _find_frame(tokenizer: Any, second: str | None) -> Frames | None:
    """Find the tokens that the tokenizer puts around a text, including the second text if there is one.

    Returns None if the tokenizer is written in Python, truncates on the left, or does more than add tokens around a
    text.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return None
    empty, filled = (tokenizer(text, second, truncation=False, padding=False, verbose=False) for text in ("", _PROBE))
    ids, content = filled["input_ids"], backend.encode(_PROBE, add_special_tokens=False).ids
    types = filled.get("token_type_ids", [0] * len(ids))
    for start in range(len(ids) - len(content) + 1):
        head, tail = ids[:start], ids[start + len(content) :]
        if (
            [*head, *content, *tail] == ids
            and [*head, *tail] == empty["input_ids"]
            and not any(types[: len(ids) - len(tail)])
        ):
            tail_types = types[len(ids) - len(tail) :]  # the types of head and text are 0
            return Frames(head=np.array(head, np.int32), tails=flat([tail], [tail_types]))
    return None
