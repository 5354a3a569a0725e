"""The ledger's promises about outputs: shards with lost files are queued again, and a run has one state."""

from itertools import count

import pytest
import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.run.spec import RunSpec, Shard
from support.ledger_states import claimed
from support.records import a_receipt, a_shard, a_spec

_numbers = count()
A, B, C = a_shard("a"), a_shard("b"), a_shard("c/d")
PUBLICATION = Publication(uri="x", commit="", shards=3)


@pytest.fixture
def spec() -> RunSpec:
    return a_spec(input_revision=f"revision-{next(_numbers)}")


@pytest.fixture
def run(ledger: Ledger, spec: RunSpec) -> str:
    """A run of three shards, all done."""
    ledger.create_run(spec, [A, B, C], now=1.0)
    for shard in (A, B, C):
        complete(ledger, spec.run_id, shard)
    return spec.run_id


def complete(ledger: Ledger, run_id: str, shard: Shard) -> None:
    ledger.complete(claimed(ledger, run_id, shard), a_receipt(run_id, shard))


class TestRequeueing:
    def test_more_shards_than_fit_in_one_call_are_all_queued(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(1_234)]
        ledger.create_run(spec, shards, now=1.0)
        ledger.restore(spec.run_id, [a_receipt(spec.run_id, shard) for shard in shards])
        damaged = {shard.name: "lost" for shard in shards}

        assert ledger.requeue(spec.run_id, damaged, of=ledger.receipts(spec.run_id)) == 1_234
        assert ledger.counts(spec.run_id).rows_in == 0


class TestPublishing:
    def test_a_published_run_cannot_be_cancelled(self, ledger: Ledger, run: str) -> None:
        ledger.record_publication(run, PUBLICATION)

        with pytest.raises(UsageError, match=f"Run {run} is published"):
            ledger.cancel(run)

        assert not ledger.is_cancelled(run)

    def test_a_shard_waits_as_long_as_a_service_asks(self, ledger: Ledger, spec: RunSpec) -> None:
        ledger.create_run(spec, [A], now=1.0)
        seconds, _ = ledger.redis.time()

        ledger.retry_later(claimed(ledger, spec.run_id, A), "429", "", after_seconds=3600)

        due_ms = due(ledger.redis, spec.run_id)
        assert due_ms / 1000 - seconds == pytest.approx(3600, abs=5)


def due(client: redis.Redis, run_id: str) -> float:
    ((_, score),) = client.zrange(f"shardsift:run:{run_id}:waiting", 0, -1, withscores=True)
    return float(score)
