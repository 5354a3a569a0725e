"""How a run stands, for people and for programs."""

import pytest

from fleet.ledger import Ledger
from producer.status import ExitCode, RunStatus, run_status, what_next
from support.records import a_shard, a_spec


@pytest.fixture
def status(ledger: Ledger) -> RunStatus:
    spec = a_spec()
    ledger.create_run(spec, [a_shard()], now=0)
    return run_status(ledger, spec.run_id)


def test_what_was_refused_is_told_with_how_often_it_came(ledger: Ledger, status: RunStatus) -> None:
    for _ in range(1200):
        ledger.count_refused("messages that are not ours")
    ledger.count_refused("messages of a newer version")

    status = run_status(ledger, status.run_id)

    assert (
        "Refused so far, over all runs: 1 messages of a newer version; 1,200 messages that are not ours."
    ) in what_next(status)
    assert status.as_json()["refused"] == {
        "messages of a newer version": 1,
        "messages that are not ours": 1200,
    }


def test_a_run_whose_enqueue_did_not_end_says_what_to_do(ledger: Ledger) -> None:
    spec = a_spec()
    ledger.add_shards(spec, [a_shard()], now=0)

    status = run_status(ledger, spec.run_id)

    assert (status.word, status.exit_code) == ("half enqueued", ExitCode.RUNNING)
    assert what_next(status) == ["Its enqueue did not end: run the same command again, and it begins."]


def test_where_nothing_was_refused_nothing_is_said(status: RunStatus) -> None:
    assert not any("Refused" in line for line in what_next(status))
    assert status.as_json()["refused"] == {}
