"""The ledger benchmark runs to its end on a few shards, and writes its measurements."""

import json
from pathlib import Path

import pytest

from benchmarks.ledger.measure import Plan, measure
from benchmarks.ledger.report import Report
from benchmarks.ledger.scale import measure_size
from benchmarks.ledger.simulate import Call
from benchmarks.results import provenance_of

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
