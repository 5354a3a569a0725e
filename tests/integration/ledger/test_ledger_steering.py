"""A run may limit its workers. No further one gets a shard, and no message is sent that would be refused."""

import pytest

from fleet.ledger import Ledger
from fleet.ledger.records import Steering
from support.ledger_states import A, again, claimed


class TestMaxWorkers:
    @pytest.mark.parametrize(("workers", "queued"), [(None, 2), (1, 0), (2, 1), (9, 2)])
    def test_machines_see_the_shards_that_further_workers_may_take(
        self, ledger: Ledger, run: str, workers: int | None, queued: int
    ) -> None:
        claimed(ledger, run, A)

        ledger.steer(run, Steering(max_workers=workers))

        (opened,) = [opened for opened in ledger.open_runs() if opened.run_id == run]
        assert (opened.queued, opened.running) == (queued, 1)
        assert again(ledger, run) == []
