"""Cut long texts where a tokenizer gives the part the first tokens of the whole. Knows nothing of models or batches.

A cut falls at one space between two words, with two letters or digits on each side: "ab cd" becomes "ab". There nothing
that a known tokenizer does can reach across, so the tokens of "…ab" are the first ones of "…ab cd…". Of the parts of a
tokenizer, in the order in which they work, this file allows those for which that is proved:

  added tokens     have no letter before a space within them, so none lies across the cut. Those that take the spaces
                   beside them stop at a letter; those that must be single words take a space and an end alike.
  normalizers      change a character by itself, or with neighbours that a letter or a space never joins.
  pre-tokenizers   begin a piece at a space, or drop it, and see of what follows only whether it is a space or the end.
  models           see one piece at a time.
"""

import json
import re
from collections.abc import Callable
from typing import Any

# Letters and digits, but for those few that Unicode binds to the character before or after them, and those beyond
# the Basic Multilingual Plane, where such are many. https://www.unicode.org/reports/tr29/ (Prepend, Extend, SpacingMark)
_PLAIN = r"[^\W_\u0d4e\u0e33\u0eb3\uff9e\uff9f\U00010000-\U0010ffff]"
_LAST_PLACE = re.compile(
    rf"(?s).*{_PLAIN}{{2}}(?= {_PLAIN}{{2}})"
)  # `.*` takes all and gives back: a search from the end
_LETTER_BEFORE_SPACE = re.compile(r"[^\W_] ")

_LOCAL_NORMALIZERS = {
    "BertNormalizer",  # by character, but for accents, as NFD
    "Lowercase",
    "StripAccents",
    "NFC",  # a space neither combines with what is before it nor changes
    "NFD",
    "NFKC",
    "NFKD",
    "Strip",  # the ends only, and a part ends in a letter
    "Precompiled",  # SentencePiece's, by grapheme: a plain letter or a space beside one is a grapheme by itself
}
_RUNS_OF_SPACES = {" {2,}", r"\s{2,}|[\n\r\t]", r"\n"}  # of which a space between letters is none

# No alternative of these takes a space behind anything but spaces, and `(?!\S)` takes a space and the end alike.
_WORDS = {
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
    """What of the first `limit` characters is before the last safe place; "" where their second half has none."""
    place = _LAST_PLACE.match(text, limit // 2, limit)
    while place and not _stay_words(text[place.end() - 1], text[place.end() + 1], normalize):
        place = _LAST_PLACE.match(text, limit // 2, place.end() + 2)
    return text[: place.end()] if place else ""


def _stay_words(before: str, after: str, normalize: Callable[[str], str]) -> bool:
    """Whether normalizing leaves these letters letters, and the space between them a space."""
    words = normalize(before), normalize(after)
    return all(word.isalnum() for word in words) and normalize(f"{before} {after}") == " ".join(words)


def may_cut(backend: Any) -> bool:
    """Whether `cut` is proved for this tokenizers.Tokenizer: for one that merges across words, like Gemma's, it is not."""
    try:
        parts = json.loads(backend.to_str())
    except Exception:  # a part written in Python; tokenizers has no class for this error
        return False
    normalize = normalizing(backend)
    added = [token["content"] for token in parts["added_tokens"]]
    return (
        not any(_LETTER_BEFORE_SPACE.search(content) for token in added for content in (token, normalize(token)))
        and _is_local(parts["normalizer"])
        and _splits_words(parts["pre_tokenizer"])
    )


def normalizing(backend: Any) -> Callable[[str], str]:
    """What the tokenizer does to a text before it splits it."""
    return backend.normalizer.normalize_str if backend.normalizer else str


def _is_local(normalizer: Any) -> bool:
    match normalizer:
        case None:
            return True
        case {"type": "Sequence", "normalizers": steps}:
            return all(_is_local(step) for step in steps)
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": " " | "▁"}:
            return pattern in _RUNS_OF_SPACES
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:  # ALBERT's quotation marks
            return content.isascii() and not any(character.isalnum() or character.isspace() for character in pattern)
        case _:
            return normalizer["type"] in _LOCAL_NORMALIZERS


def _splits_words(pre_tokenizer: Any) -> bool:
    match pre_tokenizer:
        case {"type": "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit"}:
            return True
        case {"type": "Metaspace", "split": True} | {"type": "ByteLevel", "use_regex": True}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return pattern in _WORDS.values()
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}:
            return pattern in _WORDS.values()
        case {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits" | "Punctuation"}, *steps],
        }:  # these see one character
            return _splits_words({"type": "Sequence", "pretokenizers": steps})
        case {"type": "Sequence", "pretokenizers": [first, *_]}:  # the others split its pieces one by one
            return _splits_words(first)
        case _:
            return False
