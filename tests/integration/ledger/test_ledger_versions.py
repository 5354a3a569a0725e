"""A run that a newer version has enqueued is left to workers of that version, and does not disturb other runs."""

import json

import pytest

from fleet.errors import NewerVersion
from fleet.ledger import Claim, Ledger
from fleet.ledger.base import Keys
from fleet.run.spec import RunSpec
from support.processes import call_command
from support.records import a_shard, a_spec

SPEC, OLDER = a_spec(), a_spec(limit_rows=7)
A = a_shard("crawl/a")


@pytest.fixture(autouse=True)
def _empty(ledger: Ledger) -> None:
    ledger.redis.flushall()


@pytest.fixture(params=[(), ("scorings", 0), ("scorings", 0, "model")], ids=["run", "scoring", "model"])
def newer(request: pytest.FixtureRequest, ledger: Ledger) -> RunSpec:
    """A run whose spec has a field that this version does not know."""
    ledger.create_run(SPEC, [A], now=1)
    spec = json.loads(SPEC.to_json())
    part = spec
    for step in request.param:
        part = part[step]
    part["of_a_later_version"] = 3
    ledger.redis.hset(Keys(SPEC.run_id).run, "spec", json.dumps(spec))
    return SPEC


def test_its_spec_is_not_read_as_if_the_field_were_not_there(newer: RunSpec, ledger: Ledger) -> None:
    with pytest.raises(NewerVersion, match=r"of_a_later_version: .*\. Update shardsift here\.") as raised:
        ledger.spec(newer.run_id)

    assert newer.run_id in str(raised.value)


def test_its_shards_are_not_claimed_and_count_no_attempt(newer: RunSpec, ledger: Ledger) -> None:
    with pytest.raises(NewerVersion):
        ledger.claim(newer.run_id, A.name, owner="w1@host/1")

    counts = ledger.counts(newer.run_id)
    assert (counts.queued, counts.running) == (1, 0)
    assert ledger.redis.hgetall(Keys(newer.run_id).attempts(A.name)) == {}


def test_open_runs_of_this_version_are_found_beside_it(newer: RunSpec, ledger: Ledger) -> None:
    ledger.create_run(OLDER, [A], now=2)

    assert [run.run_id for run in ledger.open_runs()] == [OLDER.run_id]
    assert isinstance(ledger.claim(OLDER.run_id, A.name, owner="w1@host/1"), Claim)


def test_the_list_of_runs_names_it(newer: RunSpec, ledger: Ledger, redis_url: str) -> None:
    ledger.create_run(OLDER, [A], now=2)

    done = call_command("producer", "runs", environment={"REDIS_URL": redis_url})

    assert done.returncode == 0
    assert OLDER.run_id in done.stdout
    assert f"Run {newer.run_id} was enqueued by another version of shardsift" in done.stderr


def test_open_runs_are_those_with_shards_that_may_be_taken(ledger: Ledger) -> None:
    cancelled, half, done = (a_spec(limit_rows=rows) for rows in (1, 2, 3))
    ledger.create_run(SPEC, [A, a_shard("crawl/b")], now=4)
    ledger.create_run(cancelled, [A], now=1)
    ledger.cancel(cancelled.run_id)
    ledger.add_shards(half, [A], now=2)
    ledger.create_run(done, [], now=3)
    ledger.claim(SPEC.run_id, A.name, owner="w1@host/1")

    (run,) = ledger.open_runs()

    assert (run.run_id, run.spec, run.queued, run.running) == (SPEC.run_id, SPEC, 1, 1)
