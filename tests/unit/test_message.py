"""A message can only name a run and a shard."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardsift.fleet.dispatch import ScoreShard

RUN = "cc-main-2024-10.fineweb-edu-classifier.0123456789ab"
SCORE = {"run_id": RUN, "shard": "CC-MAIN-2024-10/000_00000"}


@pytest.mark.parametrize(
    "change",
    [
        {"uri": "file:///etc/passwd"},
        {"run_id": "../other"},
        {"run_id": f"{RUN}\n"},
        {"run_id": 7},
        {"run_id": "a" * 10_000_000},
        {"shard": "a/../b"},
        {"shard": 7},
        {"shard": "a/" * 5_000_000 + "a"},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_message_with_a_foreign_field_or_a_name_that_leaves_the_output_is_refused(
    change: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError):
        ScoreShard.model_validate(SCORE | change)
