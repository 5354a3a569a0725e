"""All processes of a fleet have one version: the ledger of another is refused."""

import json
from pathlib import Path

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.base import VERSION_KEY, Keys
from shardsift.fleet.process.settings import Settings
from support.records import a_shard, a_spec
from support.redis_servers import redis_server

SPEC = a_spec()
A = a_shard("crawl/a")


def test_the_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    says = r"version of shardsift \(format 3, and 2 here\). Install the same version everywhere"
    with redis_server(tmp_path) as server:
        settings = Settings(redis_url=server.url)
        Ledger.connect(settings).create_run(SPEC, [A], now=1)
        Ledger.connect(settings).redis.set(VERSION_KEY, "3")

        with pytest.raises(UsageError, match=says):
            Ledger.connect(settings)


@pytest.mark.parametrize("part", [(), ("scorings", 0), ("scorings", 0, "model")], ids=["run", "scoring", "model"])
def test_a_spec_with_an_unknown_field_is_not_read_without_it(part: tuple[str | int, ...], ledger: Ledger) -> None:
    ledger.create_run(SPEC, [A], now=1)
    spec = json.loads(SPEC.to_json())
    changed = spec
    for step in part:
        changed = changed[step]
    changed["of_a_later_version"] = 3
    ledger.redis.hset(Keys(SPEC.run_id).run, "spec", json.dumps(spec))

    with pytest.raises(UsageError, match=r"another version of shardsift.*of_a_later_version") as raised:
        ledger.spec(SPEC.run_id)

    assert SPEC.run_id in str(raised.value)


def test_open_runs_are_those_with_shards_that_may_be_taken(ledger: Ledger) -> None:
    cancelled, half, done, paused = (a_spec(limit_rows=rows) for rows in (1, 2, 3, 4))
    ledger.create_run(SPEC, [A, a_shard("crawl/b")], now=4)
    ledger.create_run(cancelled, [A], now=1)
    ledger.cancel(cancelled.run_id)
    ledger.add_shards(half, [A], now=2)
    ledger.create_run(done, [], now=3)
    ledger.create_run(paused, [A], now=5)
    ledger.pause(paused.run_id)
    ledger.claim(SPEC.run_id, A.name, owner="w1@host/1")

    (run,) = ledger.open_runs()

    assert (run.run_id, run.spec, run.queued, run.running) == (SPEC.run_id, SPEC, 1, 1)
