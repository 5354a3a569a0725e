"""The ledger benchmarks run to their end on a few shards: one writes its measurements, one simulates the end of a run."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.ledger.measure import Plan, measure
from benchmarks.ledger.report import Report
from benchmarks.ledger.scale import measure_size
from benchmarks.ledger.simulate import Call
from benchmarks.results import provenance_of
from benchmarks.tail import Fleet
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from support.ledger_machine import ClockedRedis

SHARDS = 200


@pytest.mark.slow
def test_all_shards_are_done_and_the_results_have_every_call(tmp_path: Path) -> None:
    measured = measure(Plan(shards=SHARDS, workers=4, processes=2, fleet_seconds=1), say=lambda line: None)
    size = measure_size(2_000, say=lambda line: None)
    report = Report(provenance=provenance_of("benchmarks.ledger"), measured=measured, sizes=[size])

    as_json, as_markdown = report.write(tmp_path, part="tiny")

    assert sum(phase.shards for phase in measured.phases) == SHARDS
    assert json.loads(as_json.read_text())["measured"]["plan"]["shards"] == SHARDS
    assert all(f"| {call} |" in as_markdown.read_text() for call in Call)


def test_with_parts_of_files_a_fleet_of_two_speeds_ends_almost_as_soon_as_its_speed_says(redis_url: str) -> None:
    with ClockedRedis.from_url(redis_url, decode_responses=True) as client:
        ledger = Ledger(client, Settings())

        whole, parts = (
            Fleet(
                ledger=ledger, rows_per_task=rows, shards=10, workers=4, preempted=0.2, chance=random.Random(0)
            ).makespan()
            for rows in (845_000, 50_000)
        )

    assert whole > 1.15
    assert 1.0 <= parts < 1.03
