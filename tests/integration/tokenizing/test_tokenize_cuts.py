"""A long text is cut only where the cut changes no token, and only for tokenizers that are proved to allow it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoTokenizer

from shardsift.worker.scoring.tokenizing.contents import WORD_PATTERNS, cut, may_cut, normalizing
from support import tokenizers as families
from support.encoding import bare_backend
from support.odd_texts import SHORT_TEXTS


@settings(max_examples=200, deadline=None)
@given(text=SHORT_TEXTS)
def test_the_tokens_before_every_cut_are_the_first_ones_of_the_text(cut_folder: Path, text: str) -> None:
    backend = bare_backend(cut_folder)

    whole = backend.encode(text, add_special_tokens=False).ids

    for part in parts_of(text, normalizing(backend)):
        ids = backend.encode(part, add_special_tokens=False).ids
        assert ids == whole[: len(ids)], (part[-10:], text[len(part) :][:10])


def parts_of(text: str, normalize: Callable[[str], str]) -> list[str]:
    """The text cut at every safe place except those near its beginning."""
    parts, limit = [], len(text)
    while limit > 4:
        part = cut(text, limit, normalize)
        parts += [part] if part else []
        limit = len(part) + 2 if part else limit // 2
    return parts


NORMALIZERS = {
    "BERT cased": normalizers.BertNormalizer(lowercase=False, strip_accents=False),
    "NFC": normalizers.NFC(),
    "NFKC": normalizers.NFKC(),
    "NFKD, no accents": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    "NFD": normalizers.NFD(),
    "stripped": normalizers.Strip(),
    "spaces of DeBERTa": normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
    "spaces of XLM-RoBERTa": normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), "▁")]),
    "quotation marks": normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]),
}


@pytest.mark.parametrize("name", NORMALIZERS)
@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
def test_a_normalizer_that_allows_a_cut_gives_the_part_the_beginning_of_the_whole(name: str, text: str) -> None:
    backend = tokenizer_of(NORMALIZERS[name], pre_tokenizers.ByteLevel())
    normalize = normalizing(backend)

    whole = normalize(text)

    assert may_cut(backend)
    for part in parts_of(text, normalize):
        beginning = normalize(part)
        assert whole.startswith(beginning)
        assert whole[len(beginning)] == " "


@pytest.fixture(scope="module")
def odd_normalizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Removes some letters, replaces others by spaces, and joins spaces."""
    rules = {"e": " ", "t": "", "s": " x", "n": "n ", "\u0301": " ", "r\u0301": " ", "\u0d4e": " ", "ﾞ": ""}
    charsmap = families.compiled_character_map(rules, tmp_path_factory.mktemp("rules"))
    return normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), "▁")])


@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
@example(text="go up \u0d4e1 23 go")
@example(text="go up 1 2ﾞ go")
def test_no_cut_falls_where_a_character_map_removes_letters_or_replaces_them_by_spaces(
    odd_normalizer: Any, text: str
) -> None:
    whole = odd_normalizer.normalize_str(text)

    for part in parts_of(text, odd_normalizer.normalize_str):
        beginning = odd_normalizer.normalize_str(part)
        assert whole.startswith(beginning)
        assert whole[len(beginning)] == " "


def tokenizer_of(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    backend = Tokenizer(BPE())
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    return backend


def words_by(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


PRE_TOKENIZERS = {
    "white space": pre_tokenizers.WhitespaceSplit(),
    "words": pre_tokenizers.Whitespace(),
    "RoBERTa with a space in front": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "SentencePiece, first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "T5": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    "StarCoder": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "Falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    **{name: words_by(pattern) for name, pattern in WORD_PATTERNS.items()},
}


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(text=SHORT_TEXTS)
def test_a_pre_tokenizer_that_allows_a_cut_gives_the_part_the_first_pieces_of_the_whole(name: str, text: str) -> None:
    backend = tokenizer_of(None, PRE_TOKENIZERS[name])

    whole = backend.pre_tokenizer.pre_tokenize_str(text)

    assert may_cut(backend)
    for part in parts_of(text, str):
        pieces = backend.pre_tokenizer.pre_tokenize_str(part)
        assert [piece for piece, _ in pieces] == [piece for piece, _ in whole[: len(pieces)]]


class EveryCharacter:
    """A pre-tokenizer in Python, whose behaviour is unknown."""

    def pre_tokenize(self, text: Any) -> None:
        text.split(lambda _, piece: [piece[place : place + 1] for place in range(len(str(piece)))])


UNPROVED: dict[str, Callable[[Any], None]] = {
    "no pre-tokenizer": lambda backend: setattr(backend, "pre_tokenizer", None),
    "a pre-tokenizer that keeps words together": lambda backend: setattr(
        backend, "pre_tokenizer", pre_tokenizers.Metaspace(split=False)
    ),
    "an unknown pattern": lambda backend: setattr(backend, "pre_tokenizer", words_by(r"\w+ \w+|\s+|\S+")),
    "a pre-tokenizer in Python": lambda backend: setattr(
        backend, "pre_tokenizer", pre_tokenizers.PreTokenizer.custom(EveryCharacter())
    ),
    "a normalizer that joins words": lambda backend: setattr(backend, "normalizer", normalizers.Replace(" ", "▁")),
    "a pattern that takes spaces": lambda backend: setattr(
        backend, "normalizer", normalizers.Replace(Regex("a b"), " ")
    ),
    "an added token of two words": lambda backend: backend.add_tokens(["New York"]),
    "an added token that ends in a space": lambda backend: backend.add_tokens(["New "]),
    "an added token of two words once normalized": lambda backend: backend.add_tokens([AddedToken("New\tYork")]),
}


@pytest.mark.parametrize("change", UNPROVED.values(), ids=UNPROVED)
def test_a_tokenizer_that_is_not_proved_to_allow_cuts_is_not_cut(bert: Path, change: Callable[[Any], None]) -> None:
    backend = AutoTokenizer.from_pretrained(bert).backend_tokenizer
    assert may_cut(backend)

    change(backend)

    assert not may_cut(backend)


def test_a_tokenizer_that_merges_across_words_is_not_cut(tmp_path: Path) -> None:
    families.save_llama2_tokenizer(tmp_path)

    assert not may_cut(AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer)
