"""Encode texts with our tokenizer, and in full with the original."""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import AutoTokenizer

from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer

MAX_TOKENS = 32  # a text of more than 192 characters is cut, so most texts of the tests are cut


def full_encode(tokenizer: Any, texts: list[str], *, max_tokens: int = MAX_TOKENS) -> list[list[int]]:
    return [list(tokenizer(text, truncation=True, max_length=max_tokens)["input_ids"]) for text in texts]


def encode(ours: TextTokenizer, texts: list[str]) -> list[list[int]]:
    tokens = ours.encode(pa.array(texts, pa.string()))
    assert tokens.ids.dtype == "int32"
    return [tokens[row].tolist() for row in range(len(tokens))]


@cache
def bare_backend(folder: Path) -> Any:
    backend = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend
