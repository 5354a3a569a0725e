"""The special tokens that a tokenizer puts around every text. Knows nothing of models or batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from worker.scoring.tokenizing.tokens import Tokens, offsets_of


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special tokens before and after every text."""

    prefix: list[int]
    suffix: list[int]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def around(self, contents: Tokens) -> Tokens:
        offsets = offsets_of(contents.lengths + len(self))
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


def find_frame(tokenizer: Any) -> Frame | None:
    """None if the tokenizer is written in Python, truncates on the left, or does more than add tokens at both ends."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return None
    empty, framed = tokenizer(["", "Nine words"], truncation=False, padding=False, verbose=False)["input_ids"]
    bare = backend.encode("Nine words", add_special_tokens=False).ids
    for start in range(len(framed) - len(bare) + 1):
        frame = Frame(prefix=framed[:start], suffix=framed[start + len(bare) :])
        if [*frame.prefix, *bare, *frame.suffix] == framed and frame.prefix + frame.suffix == empty:
            return frame
    return None
