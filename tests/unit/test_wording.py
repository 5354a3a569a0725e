"""Counts, lists and durations as users read and write them."""

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import first_of, parse_duration, shown_bytes, shown_duration


@pytest.mark.parametrize(
    ("names", "told"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_a_long_list_is_shortened_to_its_first_names(names: list[str], told: str) -> None:
    assert first_of(names, 2) == told


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 m ", 120)])
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "90", "10 minutes", "-5s", "1e3", "٣s"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="such as 90s, 10m or 2h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(45, "45 s"), (600, "10 min"), (7200, "2 h"), (7800, "2 h 10 min"), (108_400, "30 h")]
)
def test_a_duration_is_shown_as_exactly_as_a_person_needs_it(seconds: float, shown: str) -> None:
    assert shown_duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(200_000, "200kB"), (1_500_000_000, "1500MB"), (1 << 30, "1GiB"), (65_537, "65537B")]
)
def test_a_size_is_shown_in_the_largest_unit_that_does_not_round_it(size: int, shown: str) -> None:
    assert shown_bytes(size) == shown
