"""Put special tokens, and a fixed second text, around the ids of texts or of their passages. Knows nothing of models.

The tokens around a text are called its frame: the special tokens before and after it, and the second text if there is one.
The ids are those of `tokenizer(text)`, or of `tokenizer(text, second, truncation="only_first")`, which never truncates
the second text. A text is tokenized once, however many second texts and passages there are. A sequence is assembled
when its batch is due, so that each text is in memory once.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.worker.scoring.tokenizing.contents import ContentEncoder, twin_of
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


WHOLE = 1 << 30  # more tokens than any text has


class SequenceEncoder(Protocol):
    def encode(self, texts: pa.Array, /) -> tuple[Sequences, Int64s]:
        """Return the sequences of all texts, and offsets: text i has the sequences `offsets[i]:offsets[i + 1]`.

        Each text has at least one sequence. `texts` has no nulls.
        """


def passages_of(contents: Tokens, passages: str, *, room: int) -> tuple[Int64s, Int64s, Int64s]:
    """Find the passages of tokenized texts. Returns their starts in `contents.ids`, their lengths, and offsets.

    Text i has the passages `offsets[i]:offsets[i + 1]`.
    """
    places, counts = places_of_passages(contents.lengths, passages, room=room)
    text_of = np.repeat(np.arange(len(contents)), counts)
    lengths = np.minimum(contents.lengths[text_of] - places, room)
    return contents.offsets[text_of] + places, lengths, offsets_of(counts)


def places_of_passages(lengths: Int64s, passages: str, *, room: int) -> tuple[Int64s, Int64s]:
    """Return the start of each passage within its text, and the number of passages of each text.

    `lengths` has the number of tokens of each text, and `room` is the most tokens of a passage.
    """
    kind, _, stride = passages.partition(":")
    beyond = np.maximum(lengths - room, 0)  # tokens after the first passage
    match kind:
        case "head":
            steps, counts = beyond, np.ones_like(lengths)
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
    places: Int64s = np.minimum(number * np.repeat(steps, counts), np.repeat(beyond, counts))
    return places, counts


# Passages as on the cards of the FinePDFs classifiers. Knows nothing of models.
#
# The first 10,000 characters of a text are tokenized, as many tokens as fit the model are decoded, and the last word is
# dropped. The end of a text of more than 20,000 characters is read in the same way, without its first word. Then the
# passages are tokenized again, so no word is cut, but there may be a few more tokens. Source: the code on the card of
# https://huggingface.co/HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn

_CHARS = 10_000
_WITHOUT_SPACE = 10  # characters to drop if there is no white space to cut at
_FIRST_SPACE, _LAST_WORD = re.compile(r"\s"), re.compile(r"\s\S*\Z")


class FinePdfsEncoder:
    """Encodes the beginning of each text, and the end of a text of over 20,000 characters, as FinePDFs does.

    Each is a passage of about `room` tokens. `encode` tokenizes the passages, with special tokens.
    """

    def __init__(self, tokenizer: Any, *, room: int, encode: Callable[[pa.Array], Tokens]) -> None:
        ours = twin_of(tokenizer)
        self._room = room
        self._contents = ContentEncoder(ours.backend_tokenizer, room=WHOLE)
        self._decode = ours.batch_decode
        self._encode = encode

    def encode(self, texts: pa.LargeStringArray) -> tuple[Tokens, Int64s]:
        is_long = pc.utf8_length(texts).to_numpy() > 2 * _CHARS
        offsets = offsets_of(1 + is_long.astype(np.int64))
        tops = self._decoded(pc.utf8_slice_codeunits(texts, 0, _CHARS), slice(self._room))
        ends = self._decoded(
            pc.utf8_slice_codeunits(texts.filter(pa.array(is_long)), -_CHARS), slice(-self._room, None)
        )
        passages = np.empty(offsets[-1], dtype=object)
        passages[offsets[:-1]] = list(map(_without_last_word, tops))
        passages[offsets[1:][is_long] - 1] = list(map(_without_first_word, ends))
        return self._encode(pa.array(passages, pa.large_string())), offsets

    def _decoded(self, texts: pa.Array, kept: slice) -> Iterable[str]:
        contents = self._contents.encode(texts)
        ids = [contents[text][kept].tolist() for text in range(len(contents))]
        decoded: list[str] = self._decode(ids, skip_special_tokens=True)
        return decoded


def _without_last_word(text: str) -> str:
    word = _LAST_WORD.search(text)
    return text[: word.start()] if word else text[:-_WITHOUT_SPACE]


def _without_first_word(text: str) -> str:
    space = _FIRST_SPACE.search(text)
    return text[space.end() :] if space else text[_WITHOUT_SPACE:]
