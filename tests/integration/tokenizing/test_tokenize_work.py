"""Long texts cost a fraction of a full encode, in work and in memory, and have the same ids."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import AutoTokenizer

from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from support.encoding import encode, full_encode
from support.odd_texts import real_texts


def test_a_text_of_a_megabyte_costs_little_more_than_its_beginning(cut_folder: Path) -> None:
    ours = TextTokenizer(AutoTokenizer.from_pretrained(cut_folder), max_tokens=128)
    (text,) = real_texts(1)
    beginnings, megabytes = pa.array([text[:1_000]] * 8), pa.array([text * (1_000_000 // len(text))] * 8)

    for_beginnings, for_megabytes = (
        fastest(lambda texts=texts: ours.encode(texts)) for texts in (beginnings, megabytes)
    )

    assert for_megabytes < 100 * for_beginnings  # without a cut it would cost a thousand times as much


def fastest(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def test_a_text_that_is_one_word_of_2_million_letters_has_the_ids_of_a_full_encode(bert: Path) -> None:
    ours, theirs = (AutoTokenizer.from_pretrained(bert) for _ in range(2))

    ids = encode(TextTokenizer(ours, max_tokens=512), ["a" * 2_200_000])

    assert ids == full_encode(theirs, ["a" * 2_200_000], max_tokens=512)


class Letters:
    """A tokenizer in Python, whose ids are character codes. It keeps the last ids, and records the texts of its calls."""

    pad_token_id = None
    model_input_names = ("input_ids", "attention_mask")

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Letters":
        return self

    def __call__(self, texts: list[str], *, max_length: int, **options: Any) -> dict[str, list[list[int]]]:
        self.calls.append([len(text) for text in texts])
        return {"input_ids": [[ord(letter) for letter in text[-max_length:]] for text in texts]}


def test_one_call_of_the_tokenizer_gets_a_bounded_number_of_characters_however_long_and_many_the_texts() -> None:
    letters = Letters()
    texts = pa.array(["a" * 1_500_000 + "b"] * 8 + ["c"] * 4_000 + ["d" * 5_000] * 100)

    tokens = TextTokenizer(letters, max_tokens=2).encode(texts)

    assert all(sum(chars) < 7_000_000 and len(chars) <= 1_025 for chars in letters.calls)
    assert len(letters.calls) < 12
    expected = "ab" * 8 + "c" * 4_000 + "dd" * 100
    assert tokens.ids.tolist() == [ord(letter) for letter in expected]


def test_only_the_first_2_mi_characters_of_a_text_are_read() -> None:
    texts = pa.array(["a" * (2**21 - 1) + "bc", "a" * (2**21 - 1) + "b"])

    tokens = TextTokenizer(Letters(), max_tokens=2).encode(texts)

    assert tokens.ids.tolist() == [ord(letter) for letter in "abab"]
