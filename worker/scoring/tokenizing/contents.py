"""Tokenize the beginnings of texts, without special tokens. Knows nothing of models or batches."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.worker.scoring.tokenizing.tokens import Tokens, flat, joined

# The tokenizer processes a whole text before it truncates, so long texts are cut first.
_CHARS_PER_TOKEN = 6  # English has 4 to 5, so the first cut of nearly every long text fills the model
_WIDEN = 4  # if a cut text does not fill the model, the next cut is this many times as long
MAX_CHARS = 1 << 21  # most characters of a text that are tokenized; limits memory
_CALL_CHARS = 1 << 22  # characters per call of the tokenizer; limits memory
_ROW_CHARS = 1 << 12  # added to the size of each text, so that a call has at most 1,024 texts


class ContentEncoder:
    """Tokenizes the beginnings of texts with the Rust tokenizer, up to `room` ids each, without special tokens.

    Changes the truncation and padding of the tokenizer that is passed in.
    """

    def __init__(self, backend: Any, *, room: int) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._encode = getattr(backend, "encode_batch_fast", backend.encode_batch)  # the fast one leaves out offsets
        self._normalize = normalizing(backend)
        self._room = room
        self._first_look = min(_CHARS_PER_TOKEN * room, MAX_CHARS) if may_cut(backend) else MAX_CHARS

    def encode(self, texts: pa.Array) -> Tokens:
        """Tokenize the beginning of each text. If it gives fewer than `room` ids, tokenizes a longer beginning."""
        looks: list[Tokens] = []
        latest = np.zeros(len(texts), np.int64)
        rows, limit, seen = np.arange(len(texts)), self._first_look, 0
        while len(rows):
            contents, enough = self._look(texts, limit)
            looks.append(contents)
            latest[rows] = np.arange(seen, seen + len(rows))
            seen += len(rows)
            rows, texts, limit = rows[~enough], texts.filter(pa.array(~enough)), min(_WIDEN * limit, MAX_CHARS)
        return joined(looks).take(latest)

    def _look(self, texts: pa.Array, limit: int) -> tuple[Tokens, npt.NDArray[np.bool_]]:
        """Tokenize each text's first `limit` characters. Returns the ids, and a mask of the texts for which they suffice."""
        lengths = pc.utf8_length(texts).to_numpy()
        is_long = lengths > limit
        contents = []
        for start, stop in calls(np.minimum(lengths, limit)):
            heads = pc.utf8_slice_codeunits(texts.slice(start, stop - start), 0, limit).to_pylist()
            if limit < MAX_CHARS:
                for row in np.flatnonzero(is_long[start:stop]).tolist():
                    heads[row] = cut(heads[row], limit, self._normalize)
            encodings = self._encode(heads, add_special_tokens=False)
            contents.append(flat([encoding.ids[: self._room] for encoding in encodings]))
        tokens = joined(contents)
        return tokens, ~is_long | (tokens.lengths == self._room) | (limit == MAX_CHARS)


def calls(chars: npt.NDArray[np.int64], most: int = _CALL_CHARS) -> Iterator[tuple[int, int]]:
    """Divide texts into calls of the tokenizer. Yields (start, stop), the range of the texts for each call.

    A call has about `most` characters, or more if a text is long. `chars` has the number of characters of each text.
    """
    call = np.cumsum(chars + _ROW_CHARS) // most
    starts = np.flatnonzero(np.diff(call, prepend=-1))
    return pairwise([*starts.tolist(), len(chars)])


# Copy a tokenizer, because calls change its truncation and padding. The copy gives the same ids.
#
# `copy.deepcopy` alone would write the tokenizer as JSON and read it again. This changes the last bit of some scores in
# a Unigram model (XLM-R, DeBERTa-v3). If a word has two equally good splits, the copy may then choose the other one.

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "encode_special_tokens")


def twin_of(tokenizer: Any) -> Any:
    """Copy a transformers tokenizer, without truncation and padding. A copy of a Rust tokenizer shares its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return copy.deepcopy(tokenizer, None if backend is None else {id(backend): _twin(backend)})


def _twin(backend: Any) -> Any:
    twin = type(backend)(backend.model)
    for part in _PARTS:
        setattr(twin, part, getattr(backend, part))
    added = sorted(backend.get_added_tokens_decoder().items())
    for special, tokens in groupby((token for _, token in added), key=lambda token: token.special):
        (twin.add_special_tokens if special else twin.add_tokens)(list(tokens))
    return twin


# Plain characters are letters, digits and ASCII punctuation, with two exceptions: the quotation marks that ALBERT's
# normalizer changes, and letters that Unicode joins to a neighbouring character (Prepend, Extend, SpacingMark). There
# are five of those in the Basic Multilingual Plane; letters outside that plane are never plain.
# https://www.unicode.org/reports/tr29/
_PLAIN = r"[!-&(-_a-~\w]"
_BINDING = re.compile("[\u0d4e\u0e33\u0eb3\uff9e\uff9f\U00010000-\U0010ffff]")
_ALL_PLAIN = re.compile(rf"{_PLAIN}+")
_LAST_PLACE = re.compile(rf"(?s).*(?: |{_PLAIN}){_PLAIN}(?= {_PLAIN}(?: |{_PLAIN}))")  # greedy, so the last match
_SPACE_WITHIN = re.compile(r"\S ")

_LOCAL_NORMALIZERS = {
    "BertNormalizer",  # works on single characters, and applies NFD
    "Lowercase",
    "StripAccents",
    "NFC",  # never changes spaces or combines them with the character before
    "NFD",
    "NFKC",
    "NFKD",
    "Strip",  # changes only the ends, and a cut text ends in a plain character
    "Precompiled",  # SentencePiece's; works on graphemes, and a plain character or a space beside it is one grapheme
}
_SPACES = {" {2,}", r"\s{2,}|[\n\r\t]", r"\n"}  # they do not match a single space between plain characters
_QUOTATION_MARKS = {"``", "''"}

# In all patterns, a match has a space only at its start or after white space, and `(?!\S)` treats a space like the end
# of the text. So a cut before a single space does not change how the text before it is split.
WORD_PATTERNS = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "GPT-4, Llama 3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "Qwen 2 and 3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "Qwen 3.5": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "GPT-4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "Mistral": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def cut(text: str, limit: int, normalize: Callable[[str], str]) -> str:
    """Cut a text between `limit` / 2 and `limit` characters, so that the tokens before the cut stay the same.

    Cuts before the last space that is safe. Returns "" if there is none.
    """
    place = _LAST_PLACE.match(text, limit // 2, limit)
    while place and not _is_safe(text, place.end(), normalize):
        place = _LAST_PLACE.match(text, limit // 2, place.end() + 2)
    return text[: place.end()] if place else ""


def _is_safe(text: str, space: int, normalize: Callable[[str], str]) -> bool:
    """Return whether the character at `space` is still a single space between plain characters after normalization."""
    if _BINDING.search(text, space - 2, space + 3):
        return False
    before, after = normalize(text[space - 1]), normalize(text[space + 1])
    is_plain = _ALL_PLAIN.fullmatch(before) and _ALL_PLAIN.fullmatch(after)
    return is_plain is not None and normalize(text[space - 1 : space + 2]) == f"{before} {after}"


def may_cut(backend: Any) -> bool:
    """Return whether `cut` is safe for this tokenizer. It is not safe if tokens may span words, as in Gemma's."""
    try:
        parts = json.loads(backend.to_str())
    except Exception:  # a component written in Python; tokenizers raises plain Exception
        return False
    normalize = normalizing(backend)
    added = [token["content"] for token in parts["added_tokens"]]
    return (
        not any(_SPACE_WITHIN.search(content) for token in added for content in (token, normalize(token)))
        and _is_local(parts["normalizer"])
        and _splits_words(parts["pre_tokenizer"])
    )


def normalizing(backend: Any) -> Callable[[str], str]:
    """Return the function with which the tokenizer normalizes a text before it splits the text."""
    return backend.normalizer.normalize_str if backend.normalizer else str


def _is_local(normalizer: Any) -> bool:
    match normalizer:
        case None:
            return True
        case {"type": "Sequence", "normalizers": steps}:
            return all(_is_local(step) for step in steps)
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": " " | "▁"}:
            return pattern in _SPACES
        case {"type": "Replace", "pattern": {"String": pattern}, "content": '"'}:
            return pattern in _QUOTATION_MARKS
        case _:
            return normalizer["type"] in _LOCAL_NORMALIZERS


def _splits_words(pre_tokenizer: Any) -> bool:
    match pre_tokenizer:
        case {"type": "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit"}:
            return True
        case {"type": "Metaspace", "split": True} | {"type": "ByteLevel", "use_regex": True}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}:
            return pattern in WORD_PATTERNS.values() and (behavior, invert) in {("Isolated", False), ("Removed", True)}
        case {"type": "Sequence", "pretokenizers": [first, *others]}:
            if first["type"] in {"Digits", "Punctuation"}:  # split off single characters, so the next decides
                return _splits_words({"type": "Sequence", "pretokenizers": others})
            return _splits_words(first)  # the others split each of its pieces by itself
        case _:
            return False
