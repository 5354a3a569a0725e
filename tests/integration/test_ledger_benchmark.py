"""The ledger benchmark runs to its end on a few shards, and reports its measurements."""

import json
from pathlib import Path

import pytest

from benchmarks.ledger.measure import Measured, Plan, measure
from benchmarks.ledger.records import ROWS, fineweb_shards, fineweb_spec, receipt_of
from benchmarks.ledger.report import Report
from benchmarks.ledger.scale import Size, measure_size
from benchmarks.ledger.simulate import Call
from benchmarks.results import provenance_of

SHARDS = 200
SHARDS_WITHOUT_WORKERS = 2_000  # enough that the base memory of Redis, which differs by version, hardly matters


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measure(Plan(shards=SHARDS, workers=4, processes=2, fleet_seconds=1), say=lambda line: None)


@pytest.fixture(scope="module")
def size() -> Size:
    return measure_size(SHARDS_WITHOUT_WORKERS, say=lambda line: None)


def test_all_shards_are_done_and_every_call_of_a_worker_is_timed(measured: Measured) -> None:
    fleet, full_speed = measured.phases

    assert fleet.shards + full_speed.shards == SHARDS
    assert {name: found.calls >= full_speed.shards for name, found in full_speed.latencies.items()} == dict.fromkeys(
        Call, True
    )
    assert full_speed.latencies[Call.COMPLETE].calls == full_speed.shards
    for found in full_speed.latencies.values():
        assert 0 < found.p50_ms <= found.p99_ms <= found.max_ms


def test_the_finalizer_hears_of_the_end(measured: Measured) -> None:
    assert 0 <= measured.end_noticed_seconds < 10


def test_memory_and_times_are_of_this_run(measured: Measured, size: Size) -> None:
    assert measured.enqueue.messages == SHARDS
    assert measured.memory_enqueued.used > 0
    assert 1_000 < size.done.used < 4_000
    assert 1_000 < size.done.append_only_file < 4_000
    assert size.first_receipt_seconds < size.receipts_seconds


def test_results_are_written_with_all_that_was_measured(measured: Measured, size: Size, tmp_path: Path) -> None:
    report = Report(provenance=provenance_of("benchmarks.ledger"), measured=measured, sizes=[size])

    as_json, as_markdown = report.write(tmp_path, part="tiny")

    assert as_json.name.endswith("-ledger-tiny.json")
    found = json.loads(as_json.read_text())
    assert found["measured"]["plan"]["shards"] == SHARDS
    text = as_markdown.read_text()
    assert all(f"| {call} |" in text for call in Call)
    assert "2,000" in text


def test_records_are_right_in_every_field_and_differ() -> None:
    shards = list(fineweb_shards(600))
    receipts = [receipt_of(fineweb_spec(0).run_id, shard, token="1-a") for shard in shards]

    assert len({shard.name for shard in shards}) == len({receipt.data.sha256 for receipt in receipts}) == 600
    assert {receipt.rows_in for receipt in receipts} == {ROWS}
    assert 1_200 < len(receipts[0].to_json()) < 2_000
