"""Lines for a terminal are broken at words, and commands stay whole."""

import pytest

from shardsift.fleet.process.wording import wrapped

COMMAND = "producer retry reviews.MiniLM-L12-H384-uncased-sst5.8f2c91a4d377 --some-option-that-is-long"


@pytest.mark.parametrize(
    ("first", "indent", "rest"),
    [
        ("Shard reviews/000_00001 failed on gpu-box/4711 (attempt 1): not a readable", "  ", "Parquet file, or one."),
        ("After fixing the cause, try them again:", "  ", COMMAND),
    ],
    ids=["a sentence goes on with an indent", "a command stays whole"],
)
def test_a_long_line_is_broken_at_words_and_a_command_stays_on_one_line(first: str, indent: str, rest: str) -> None:
    assert wrapped(f"{first} {rest}", 80) == f"{first}\n{indent}{rest}"
    assert wrapped(first, 80) == first
