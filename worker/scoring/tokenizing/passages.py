"""Turn long texts into passages of token ids, as long as the model takes. Knows nothing of models.

`head+tail` reads the beginning and the end of a text, `head+middle+tail` its middle too, and `stride:N` all of it: a passage
starts every N tokens, and the last one earlier, so that it ends with the text. A text that fits the model is one passage.
Passages are put together when their batch is due.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.contents import ContentEncoder, twin_of
from worker.scoring.tokenizing.tokens import Counts, Sequences, Tokens, offsets_of, ranges

WHOLE = 1 << 30  # tokens of a text


class SequenceEncoder(Protocol):
    def encode(self, texts: pa.Array, /) -> tuple[Sequences, Counts]:
        """The sequences of all texts, and their offsets: those of text i are `offsets[i]:offsets[i + 1]`, at least one.

        `texts` has no nulls.
        """


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
    places: Counts = np.minimum(number * np.repeat(steps, counts), np.repeat(beyond, counts))
    return places, counts


# The passages that the cards of the FinePDFs classifiers read. Knows nothing of models.
#
# The first 10,000 characters of a text are tokenized, as many tokens as the model takes are turned into text again, and the last
# word of that is dropped. Of a text of more than 20,000 characters the end is read in the same way, without its first word.
# The passages are tokenized again, so a text is not cut within a word; this may give a few tokens more. Source: the code on the
# card of https://huggingface.co/HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn

_CHARS = 10_000
_WITHOUT_SPACE = 10  # characters that are dropped if there is no white space to cut at
_FIRST_SPACE, _LAST_WORD = re.compile(r"\s"), re.compile(r"\s\S*\Z")


class FinePdfsEncoder:
    """Encodes each text as one or two passages of at most `room` tokens. `encode` tokenizes a passage, with special tokens."""

    def __init__(self, tokenizer: Any, *, room: int, encode: Callable[[pa.Array], Tokens]) -> None:
        ours = twin_of(tokenizer)
        self._room = room
        self._contents = ContentEncoder(ours.backend_tokenizer, room=WHOLE)
        self._decode = ours.batch_decode
        self._encode = encode

    def encode(self, texts: pa.LargeStringArray) -> tuple[Tokens, Counts]:
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
