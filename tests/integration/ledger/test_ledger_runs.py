"""Write a run, list runs, count shards and rows, and rebuild a lost run from its receipts."""

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.run.spec import RunSpec
from support.ledger_states import A, B, C, claimed
from support.records import a_receipt, a_shard


class TestRuns:
    def test_more_shards_than_fit_in_one_call_are_all_written(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(2_345)]

        assert ledger.create_run(spec, shards, now=1.0) == 2_345
        taken = [ledger.take_due(spec.run_id, room=2_000).fresh for _ in range(4)]
        assert [len(names) for names in taken] == [1000, 1000, 345, 0]
        assert sorted(name for names in taken for name in names) == [shard.name for shard in shards]

    def test_more_receipts_than_fit_in_one_call_are_taken_and_queued_again(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(1_234)]
        ledger.create_run(spec, shards, now=1.0)

        assert ledger.restore(spec.run_id, (a_receipt(spec.run_id, shard) for shard in shards)) == 1_234
        assert ledger.counts(spec.run_id).open == 0
        lost = {shard.name: "lost" for shard in shards}
        assert ledger.requeue(spec.run_id, lost, of=ledger.receipts(spec.run_id)) == 1_234
        assert ledger.counts(spec.run_id).rows_in == 0

    @pytest.mark.parametrize(("workers", "queued"), [(None, 2), (1, 0), (2, 1), (9, 2)])
    def test_machines_see_what_is_to_be_taken(self, ledger: Ledger, run: str, workers: int | None, queued: int) -> None:
        claimed(ledger, run, A)

        ledger.steer(run, Steering(max_workers=workers))

        (opened,) = [opened for opened in ledger.open_runs() if opened.run_id == run]
        assert (opened.queued, opened.running) == (queued, 1)

    def test_a_run_that_is_cancelled_done_or_published_is_not_paused(self, ledger: Ledger, run: str) -> None:
        ledger.cancel(run)
        with pytest.raises(UsageError, match=f"is cancelled, so it is not paused. Resume it: producer retry {run}"):
            ledger.pause(run)

        ledger.retry(run)
        for shard in (A, B, C):
            ledger.complete(claimed(ledger, run, shard), a_receipt(run, shard))
        with pytest.raises(UsageError, match="has no open shard: there is nothing left to pause"):
            ledger.pause(run)

        ledger.record_publication(run, Publication(uri="x", commit="", shards=3))
        with pytest.raises(UsageError, match="is published: there is nothing left to pause"):
            ledger.pause(run)
