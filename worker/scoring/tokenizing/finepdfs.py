"""The passages that the cards of the FinePDFs classifiers read. Knows nothing of models.

The first 10,000 characters of a text are tokenized, as many tokens as the model takes are turned into text again, and the last
word of that is dropped. Of a text of more than 20,000 characters the end is read in the same way, without its first word.
The passages are tokenized again, so a text is not cut within a word; this may give a few tokens more. Source: the code on the
card of https://huggingface.co/HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring.tokenizing.contents import ContentEncoder
from worker.scoring.tokenizing.frame import find_frame
from worker.scoring.tokenizing.tokens import Counts, Tokens, offsets_of
from worker.scoring.tokenizing.twin import twin_of

_CHARS = 10_000
_WHOLE = 1 << 30  # tokens of a text
_WITHOUT_SPACE = 10  # characters that are dropped if there is no white space to cut at
_FIRST_SPACE, _LAST_WORD = re.compile(r"\s"), re.compile(r"\s\S*\Z")


class FinePdfsEncoder:
    """Encodes each text as one or two passages. `encode` is what tokenizes a passage, with special tokens.

    Raises ValueError for a tokenizer that does more than add special tokens at both ends of a text.
    """

    def __init__(self, tokenizer: Any, *, max_tokens: int, encode: Callable[[pa.Array], Tokens]) -> None:
        ours = twin_of(tokenizer)
        frame = find_frame(ours)
        if frame is None or max_tokens <= len(frame):
            raise ValueError("its tokenizer does not only add special tokens at the ends of a text")
        self._room = max_tokens - len(frame)
        self._contents = ContentEncoder(ours.backend_tokenizer, room=_WHOLE)
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
