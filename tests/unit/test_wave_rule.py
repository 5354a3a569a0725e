"""When the finalizer saves finished shards on the Hub."""

from dataclasses import replace

import pytest

from shardsift.fleet.process.settings import Settings
from shardsift.producer.publishing.waves import is_due
from support.records import a_receipt, a_shard

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("ages", "due"),
    [
        ([], False),
        ([0.0] * 99, False),
        ([0.0] * 100, True),
        ([3600.0, 0.0], True),
        ([-7200.0], False),  # from a clock that is ahead of ours
    ],
)
def test_a_wave_is_due_when_shards_are_many_or_old(ages: list[float], due: bool) -> None:
    receipt = a_receipt("r", a_shard("crawl/a"))
    made = [replace(receipt.provenance, finished_at=NOW - age) for age in ages]
    unsaved = [replace(receipt, provenance=how) for how in made]

    assert is_due(unsaved, Settings(wave_shards=100, wave_seconds=3600), now=NOW) == due
