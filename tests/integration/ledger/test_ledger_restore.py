"""Receipts that are stored with the output rebuild a lost ledger."""

import redis

from fleet.ledger import Ledger
from fleet.ledger.base import Keys
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from support.ledger_states import A, B, C, claimed
from support.records import a_receipt, a_shard


class TestRestore:
    """Receipts that are stored with the output restore the shards of a Redis that lost everything."""

    def test_more_receipts_than_fit_in_one_call_are_all_taken(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(1_234)]
        ledger.create_run(spec, shards, now=1.0)

        assert ledger.restore(spec.run_id, (a_receipt(spec.run_id, shard) for shard in shards)) == 1_234
        assert ledger.counts(spec.run_id).open == 0


class TestTaking:
    """Before the same command adds the lost shards of a run again, it takes the receipts that Redis still has."""

    def test_a_producer_that_dies_after_it_took_them_leaves_them_to_the_next(
        self, ledger: Ledger, client: redis.Redis, spec: RunSpec, run: str
    ) -> None:
        ledger.complete(claimed(ledger, run, A), a_receipt(run, A))
        held = claimed(ledger, run, C, owner="w2")
        for _ in range(2):
            client.hdel(Keys(run).shards, B.name)
            ledger.take_receipts(run)
            ledger.add_shards(spec, [B], now=1.0)  # the producer dies

        ledger.complete(held, a_receipt(run, C))
        ledger.add_shards(spec, [A, B, C], now=1.0)
        ledger.restore(run, ledger.take_receipts(run))
        ledger.mark_enqueued(run, shards=3)

        assert list(ledger.receipts(run)) == [a_receipt(run, A), a_receipt(run, C)]
        assert (ledger.counts(run).rows_in, ledger.counts(run).is_whole) == (20, True)
        assert ledger.take_receipts(run) == []

    def test_one_that_is_recorded_at_that_moment_is_taken_too(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        held = claimed(ledger, run, C)
        client.hdel(Keys(run).shards, B.name)

        class Late(Ledger):
            def _run_script(self, *arguments: object) -> object:
                ledger.complete(held, a_receipt(run, C))
                return super()._run_script(*arguments)

        assert Late(client, Settings()).take_receipts(run) == [a_receipt(run, C)]
