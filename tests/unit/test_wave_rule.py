"""When the finalizer saves finished shards on the Hub, and how many in a commit."""

from dataclasses import replace

import pytest

from fleet.process.settings import Settings
from fleet.run.receipt import Receipt
from producer.publishing.waves import is_due, waves_of
from support.records import a_receipt, a_shard


class TestWaveRule:
    SETTINGS = Settings(wave_shards=100, wave_seconds=3600)
    NOW = 1_000_000.0

    @pytest.mark.parametrize(
        ("ages", "due"),
        [
            ([], False),
            ([0.0] * 99, False),
            ([0.0] * 100, True),
            ([3599.0, 0.0], False),
            ([3600.0, 0.0], True),
            ([-7200.0], False),  # from a clock that is ahead of ours
        ],
    )
    def test_a_wave_is_due_when_shards_are_many_or_old(self, ages: list[float], due: bool) -> None:
        unsaved = [aged(self.NOW - age) for age in ages]

        assert is_due(unsaved, self.SETTINGS, now=self.NOW) == due

    @pytest.mark.parametrize(
        ("shards", "sizes"),
        [(1, [1]), (100, [100]), (107, [107]), (199, [199]), (200, [100, 100]), (301, [101, 101, 99])],
    )
    def test_waves_are_of_about_equal_size(self, shards: int, sizes: list[int]) -> None:
        unsaved = [aged(float(number)) for number in range(shards)]

        waves = waves_of(unsaved, self.SETTINGS)

        assert [len(wave) for wave in waves] == sizes
        assert [receipt for wave in waves for receipt in wave] == unsaved


def aged(finished_at: float) -> Receipt:
    receipt = a_receipt("r", a_shard("crawl/a"))
    return replace(receipt, provenance=replace(receipt.provenance, finished_at=finished_at))
