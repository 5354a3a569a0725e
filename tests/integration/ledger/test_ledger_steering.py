"""A run may limit its workers. No further one gets a shard, and no message is sent that would be refused."""

import pytest

from fleet.ledger import Claim, Ledger, Refusal
from fleet.ledger.records import Steering
from support.ledger_states import A, B, C, again, claimed, fresh
from support.records import a_receipt


@pytest.fixture
def limited(ledger: Ledger, run: str) -> str:
    """A run of three shards for one worker at a time."""
    ledger.steer(run, Steering(max_workers=1))
    return run


class TestMaxWorkers:
    def test_a_worker_too_many_gets_no_shard(self, ledger: Ledger, limited: str) -> None:
        claimed(ledger, limited, A)

        assert ledger.claim(limited, B.name, "w2") is Refusal.FULL

    def test_no_more_messages_are_sent_than_workers_may_answer(self, ledger: Ledger, limited: str) -> None:
        assert fresh(ledger, limited) == [A.name]
        assert fresh(ledger, limited) == []
        claimed(ledger, limited, A)
        assert fresh(ledger, limited) == []

    def test_each_shard_that_ends_makes_room_for_one(self, ledger: Ledger, limited: str) -> None:
        first = claimed(ledger, limited, A)
        ledger.complete(first, a_receipt(limited, A))
        assert fresh(ledger, limited) == [B.name]
        ledger.release(claimed(ledger, limited, B))

        due = ledger.take_due(limited, room=10)

        assert (due.again, due.fresh) == ([B.name], []), "the shard that was started goes first"

    def test_a_message_that_was_refused_is_sent_again_when_there_is_room(self, ledger: Ledger, run: str) -> None:
        assert fresh(ledger, run) == [A.name, B.name, C.name]
        ledger.steer(run, Steering(max_workers=1))
        first = claimed(ledger, run, A)
        assert [ledger.claim(run, shard.name, "w2") for shard in (B, C)] == [Refusal.FULL] * 2
        assert fresh(ledger, run) == []

        ledger.complete(first, a_receipt(run, A))

        assert fresh(ledger, run) == [B.name]

    def test_the_same_worker_may_claim_again_after_its_process_crashed(self, ledger: Ledger, limited: str) -> None:
        claimed(ledger, limited, A, owner="w1")

        assert isinstance(ledger.claim(limited, A.name, "w1"), Claim)

    def test_a_lower_limit_takes_no_shard_away(self, ledger: Ledger, run: str) -> None:
        claims = [claimed(ledger, run, shard, owner=f"w{shard.name}") for shard in (A, B)]

        ledger.steer(run, Steering(max_workers=1))

        assert all(ledger.renew(claim, rows=1) for claim in claims)
        ledger.complete(claims[0], a_receipt(run, A))
        assert ledger.claim(run, C.name, "w3") is Refusal.FULL

    def test_it_ends_when_it_is_taken_away(self, ledger: Ledger, limited: str) -> None:
        claimed(ledger, limited, A)

        ledger.steer(limited, Steering())

        assert fresh(ledger, limited) == [B.name, C.name]

    @pytest.mark.parametrize(("workers", "queued"), [(None, 2), (1, 0), (2, 1), (9, 2)])
    def test_machines_see_the_shards_that_further_workers_may_take(
        self, ledger: Ledger, run: str, workers: int | None, queued: int
    ) -> None:
        claimed(ledger, run, A)

        ledger.steer(run, Steering(max_workers=workers))

        (opened,) = [opened for opened in ledger.open_runs() if opened.run_id == run]
        assert (opened.queued, opened.running) == (queued, 1)
        assert again(ledger, run) == []
