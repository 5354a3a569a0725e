"""Token ids equal those of a full encode by the tokenizer itself, for long and odd texts and for any tokenizer."""

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import AutoTokenizer

from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from support.encoding import MAX_TOKENS, encode, full_encode
from support.odd_texts import TEXTS, real_texts


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_any_text_has_the_ids_of_a_full_encode(encoders: tuple[TextTokenizer, Any], texts: list[str]) -> None:
    ours, theirs = encoders

    ids = encode(ours, texts)

    assert ids == full_encode(theirs, texts)


def test_words_that_can_be_split_in_equally_good_ways_have_the_ids_of_a_full_encode(folder: Path) -> None:
    """As rulers of one sign can: a copy of the tokenizer whose scores differ in the last bit would split some otherwise."""
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for _ in range(2))
    texts = [sign * length for sign in string.punctuation for length in range(1, 120)]

    ids = encode(TextTokenizer(ours, max_tokens=128), texts)

    assert ids == full_encode(theirs, texts, max_tokens=128)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_a_column_has_the_ids_of_its_own_texts(bert: Path, kind: pa.DataType) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))
    texts = real_texts(50)

    tokens = TextTokenizer(ours, max_tokens=MAX_TOKENS).encode(pa.array(texts, kind).slice(7, 30))

    assert [tokens[row].tolist() for row in range(30)] == full_encode(theirs, texts[7:37])
    assert len(tokens) == 30


def truncates_left(tokenizer: Any) -> None:
    tokenizer.truncation_side = "left"


def says_a_text_twice(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP] $A", special_tokens=[("[SEP]", tokenizer.sep_token_id)]
    )


def reads_special_tokens_as_text(tokenizer: Any) -> None:
    tokenizer.split_special_tokens = True


def does_as_it_is(tokenizer: Any) -> None:
    """The tokenizer of BERT."""


@pytest.mark.parametrize("change", [truncates_left, says_a_text_twice, reads_special_tokens_as_text, does_as_it_is])
@pytest.mark.parametrize("max_tokens", [2, MAX_TOKENS])
def test_a_tokenizer_changed_by_its_user_gives_the_ids_that_it_gives_by_itself(
    bert: Path, change: Callable[[Any], None], max_tokens: int
) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))
    texts = ["", "one [SEP] two", *(text[:300] for text in real_texts(10))]
    change(ours)
    change(theirs)

    ids = encode(TextTokenizer(ours, max_tokens=max_tokens), texts)

    assert ids == full_encode(theirs, texts, max_tokens=max_tokens)


def test_the_tokenizer_that_is_passed_in_does_not_change(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(100)
    before = backend.to_str()

    TextTokenizer(tokenizer, max_tokens=MAX_TOKENS).encode(pa.array(real_texts(3)))

    assert backend.to_str() == before
