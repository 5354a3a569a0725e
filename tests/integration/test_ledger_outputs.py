"""Shards of which files are lost are queued again."""

from shardsift.fleet.ledger import Ledger
from support.records import a_receipt, a_shard, a_spec


def test_more_shards_than_fit_in_one_call_are_all_queued_again(ledger: Ledger) -> None:
    spec, shards = a_spec(), [a_shard(f"{number:05}") for number in range(1_234)]
    ledger.create_run(spec, shards, now=1.0)
    ledger.restore(spec.run_id, [a_receipt(spec.run_id, shard) for shard in shards])
    damaged = {shard.name: "lost" for shard in shards}

    assert ledger.requeue(spec.run_id, damaged, of=ledger.receipts(spec.run_id)) == 1_234
    assert ledger.counts(spec.run_id).rows_in == 0
