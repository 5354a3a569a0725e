"""Cut long texts where it does not change their first tokens. Knows nothing of models or batches.

Tokenizing a whole book to keep 512 tokens is slow. A cut falls at a single space between two plain characters:
"in a. Box 2" may become "in a. Box", "in a." or "in". No step of a supported tokenizer looks across such a space, so the
tokens of the part are the first tokens of the whole. This is proved for the following steps, in the order they run:

  added tokens     contain no space after another character, so none spans the cut. A token that strips the spaces
                   beside it stops at a plain character. A whole-word token treats a space like the end of the text.
  normalizers      change one character, or a group of characters that a space or plain character never belongs to.
  pre-tokenizers   start a piece at a space or drop the space, and look ahead only for a space or the end of the text.
  models           see one piece at a time.
"""

import json
import re
from collections.abc import Callable
from typing import Any

# Plain characters are letters, digits and ASCII punctuation, with two exceptions: the quotation marks that ALBERT's
# normalizer changes, and letters that Unicode joins to the character before or after them (Prepend, Extend,
# SpacingMark). The Basic Multilingual Plane has five of those; letters outside it are never plain.
# https://www.unicode.org/reports/tr29/
_PLAIN = r"[!-&(-_a-~\w]"
_BINDING = re.compile("[\u0d4e\u0e33\u0eb3\uff9e\uff9f\U00010000-\U0010ffff]")
_ALL_PLAIN = re.compile(rf"{_PLAIN}+")
_LAST_PLACE = re.compile(rf"(?s).*(?: |{_PLAIN}){_PLAIN}(?= {_PLAIN}(?: |{_PLAIN}))")  # greedy: the last match
_SPACE_WITHIN = re.compile(r"\S ")

_LOCAL_NORMALIZERS = {
    "BertNormalizer",  # works on single characters, and applies NFD
    "Lowercase",
    "StripAccents",
    "NFC",  # leaves spaces unchanged and never combines them with the character before
    "NFD",
    "NFKC",
    "NFKD",
    "Strip",  # changes only the ends, and a part ends in a plain character
    "Precompiled",  # SentencePiece's, works on graphemes; a plain character and the space beside it are one each
}
_SPACES = {" {2,}", r"\s{2,}|[\n\r\t]", r"\n"}  # none of these matches a single space between plain characters
_QUOTATION_MARKS = {"``", "''"}

# No alternative matches a space after anything but white space, and `(?!\S)` treats a space like the end of the text.
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
    """The first `limit` characters up to the last safe place, or "" if there is none in their second half."""
    place = _LAST_PLACE.match(text, limit // 2, limit)
    while place and not _is_safe(text, place.end(), normalize):
        place = _LAST_PLACE.match(text, limit // 2, place.end() + 2)
    return text[: place.end()] if place else ""


def _is_safe(text: str, space: int, normalize: Callable[[str], str]) -> bool:
    """Whether the space is still a single space between plain characters after normalization."""
    if _BINDING.search(text, space - 2, space + 3):
        return False
    before, after = normalize(text[space - 1]), normalize(text[space + 1])
    is_plain = _ALL_PLAIN.fullmatch(before) and _ALL_PLAIN.fullmatch(after)
    return is_plain is not None and normalize(text[space - 1 : space + 2]) == f"{before} {after}"


def may_cut(backend: Any) -> bool:
    """Whether `cut` is proved for this tokenizers.Tokenizer. It is not for one that merges across words, like Gemma's."""
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
    """The function that the tokenizer applies to a text before it splits it."""
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
            if first["type"] in {"Digits", "Punctuation"}:  # split single characters only, so the next one decides
                return _splits_words({"type": "Sequence", "pretokenizers": others})
            return _splits_words(first)  # the others split its pieces one at a time
        case _:
            return False
