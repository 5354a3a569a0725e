"""Lines for a terminal are broken at words, and commands stay whole."""

from shardsift.fleet.process.wording import wrapped

RUN = "reviews.MiniLM-L12-H384-uncased-sst5.8f2c91a4d377"


def test_a_long_sentence_is_broken_at_words_and_goes_on_with_an_indent() -> None:
    line = "Shard reviews/000_00001 failed on gpu-box/4711 (attempt 1): not a readable Parquet file, or one that was cut off."

    lines = wrapped(line, 80).splitlines()

    assert lines == [
        "Shard reviews/000_00001 failed on gpu-box/4711 (attempt 1): not a readable",
        "  Parquet file, or one that was cut off.",
    ]


def test_a_command_is_on_one_line_to_be_copied() -> None:
    command = f"producer retry {RUN} --some-option-that-is-long"

    lines = wrapped(f"After fixing the cause, try them again: {command}", 60).splitlines()

    assert lines[1:] == [f"  {command}"]


def test_a_fact_goes_on_below_its_value() -> None:
    line = "rows     3,000 in, 1,200 kept, 1,790 dropped, 10 errored; 512 scored in shards that are not done"

    assert wrapped(line, 80).splitlines() == [
        "rows     3,000 in, 1,200 kept, 1,790 dropped, 10 errored; 512 scored in shards",
        "         that are not done",
    ]


def test_a_line_that_fits_stays_as_it_is() -> None:
    for line in ("", "published", "progress ████▒▒▒░░░  37% of shards done", f"run      {RUN}"):
        assert wrapped(line, 80) == line
