"""A copy of a tokenizer that gives the same ids, for settings of its own: a call changes a tokenizer's truncation and padding.

`copy.deepcopy` writes the tokenizer as JSON and reads it again, which changes the last bit of some scores of a Unigram model
(XLM-R, DeBERTa-v3). Of two splits of a word that are equally good, it may then choose the other one.
"""

import copy
from itertools import groupby
from typing import Any

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "encode_special_tokens")


def twin_of(tokenizer: Any) -> Any:
    """The twin of a transformers tokenizer, not truncating or padding yet. The vocabulary is shared, if it is not in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return copy.deepcopy(tokenizer, None if backend is None else {id(backend): _twin(backend)})


def _twin(backend: Any) -> Any:
    """Of a tokenizers.Tokenizer."""
    twin = type(backend)(backend.model)
    for part in _PARTS:
        setattr(twin, part, getattr(backend, part))
    added = sorted(backend.get_added_tokens_decoder().items())
    for special, tokens in groupby((token for _, token in added), key=lambda token: token.special):
        (twin.add_special_tokens if special else twin.add_tokens)(list(tokens))
    return twin
