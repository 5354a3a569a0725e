"""Find the passages of long texts: the parts that a model reads at once. Knows nothing of models."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.worker.scoring.tokenizing.contents import ContentEncoder, twin_of
from shardsift.worker.scoring.tokenizing.tokens import Int64s, Tokens, offsets_of, ranges

WHOLE = 1 << 30  # more tokens than any text has
_CHARS = 10_000
_WITHOUT_SPACE = 10  # characters to drop if there is no white space to cut at
_FIRST_SPACE, _LAST_WORD = re.compile(r"\s"), re.compile(r"\s\S*\Z")


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


# Passages as on the cards of the FinePDFs classifiers:
#
# The first 10,000 characters of a text are tokenized, as many tokens as fit the model are decoded, and the last word is
# dropped. The end of a text of more than 20,000 characters is read in the same way, without its first word. Then the
# passages are tokenized again, so no word is cut, but there may be a few more tokens. Source: the code on the card of
# https://huggingface.co/HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn


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
