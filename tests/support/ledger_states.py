"""Claim shards of a run."""

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.run.spec import Shard
from support.records import a_shard

A, B, C = a_shard("a"), a_shard("b"), a_shard("c/d")


def claimed(ledger: Ledger, run_id: str, shard: Shard = A, *, owner: str = "w1") -> Claim:
    claim = ledger.claim(run_id, shard.name, owner)
    assert isinstance(claim, Claim), claim
    return claim
