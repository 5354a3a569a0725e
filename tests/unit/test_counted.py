"""A count of one uses the singular."""

import pytest

from fleet.errors import OutputDamaged
from fleet.process.wording import counted, first_of


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 shards"), (1, "1 shard"), (2, "2 shards"), (12_345, "12,345 shards")]
)
def test_a_number_is_told_with_its_word(number: int, told: str) -> None:
    assert counted(number, "shard") == told


@pytest.mark.parametrize(
    ("names", "told"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_a_long_list_is_told_by_its_first_names(names: list[str], told: str) -> None:
    assert first_of(names, 2) == told


def test_an_error_about_one_shard_is_in_the_singular() -> None:
    assert str(OutputDamaged({"a": "data/a.parquet is missing"})).startswith("The stored files of 1 shard are lost")
