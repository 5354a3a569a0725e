"""A run may limit its workers. No further one gets a shard, and no message is sent that would be refused."""

import pytest

from fleet.ledger import Ledger, Refusal
from fleet.ledger.records import Steering
from support.ledger_states import A, B, C, again, claimed, fresh
from support.records import a_receipt


class TestMaxWorkers:
    def test_a_message_that_was_refused_is_sent_again_when_there_is_room(self, ledger: Ledger, run: str) -> None:
        assert fresh(ledger, run) == [A.name, B.name, C.name]
        ledger.steer(run, Steering(max_workers=1))
        first = claimed(ledger, run, A)
        assert [ledger.claim(run, shard.name, "w2") for shard in (B, C)] == [Refusal.FULL] * 2
        assert fresh(ledger, run) == []

        ledger.complete(first, a_receipt(run, A))

        assert fresh(ledger, run) == [B.name]

    @pytest.mark.parametrize(("workers", "queued"), [(None, 2), (1, 0), (2, 1), (9, 2)])
    def test_machines_see_the_shards_that_further_workers_may_take(
        self, ledger: Ledger, run: str, workers: int | None, queued: int
    ) -> None:
        claimed(ledger, run, A)

        ledger.steer(run, Steering(max_workers=workers))

        (opened,) = [opened for opened in ledger.open_runs() if opened.run_id == run]
        assert (opened.queued, opened.running) == (queued, 1)
        assert again(ledger, run) == []
