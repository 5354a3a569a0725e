"""No worker takes a shard of a paused run. Those at work give theirs back, and nothing is lost or counted as a failure."""

import time

import pytest
import redis

from fleet.errors import UsageError
from fleet.ledger import Ledger, Publication, Refusal
from fleet.run.spec import RunSpec
from support.ledger_states import A, B, C, again, claimed, end_lease, fresh
from support.records import a_receipt


def finish_all(ledger: Ledger, run: str) -> None:
    for shard in (A, B, C):
        ledger.complete(claimed(ledger, run, shard), a_receipt(run, shard))


class TestPaused:
    def test_no_shard_is_sent_or_claimed(self, ledger: Ledger, run: str) -> None:
        ledger.pause(run)

        assert len(ledger.take_due(run, room=10)) == 0
        assert ledger.claim(run, A.name, "w1") is Refusal.PAUSED
        assert run not in [opened.run_id for opened in ledger.open_runs()]

    def test_a_worker_is_told_at_its_next_renewal_and_keeps_its_shard_until_it_gives_it_back(
        self, ledger: Ledger, run: str, client: redis.Redis
    ) -> None:
        claim = claimed(ledger, run)
        assert ledger.renew(claim, rows=1)
        end_lease(client, run)

        ledger.pause(run)

        assert not ledger.renew(claim, rows=2)
        again(ledger, run)
        assert ledger.counts(run).running == 1, "the lease was extended"
        ledger.release(claim)
        assert ledger.counts(run).running == 0

    def test_a_worker_whose_answer_was_lost_gets_its_claim_and_then_gives_it_back(
        self, ledger: Ledger, run: str
    ) -> None:
        claim = ledger.claim(run, A.name, "w1", nonce="n")
        ledger.pause(run)

        assert ledger.claim(run, A.name, "w1", nonce="n") == claim

    def test_a_worker_that_vanishes_leaves_no_shard_running(
        self, ledger: Ledger, run: str, client: redis.Redis
    ) -> None:
        claimed(ledger, run)
        ledger.pause(run)
        end_lease(client, run)

        due = ledger.take_due(run, room=10)

        assert [lease.shard for lease in due.lost] == [A.name]
        assert (len(due), ledger.counts(run).running, ledger.counts(run).queued) == (0, 0, 3)

    def test_a_message_that_was_refused_is_sent_again_at_once_after_the_pause(self, ledger: Ledger, run: str) -> None:
        started = claimed(ledger, run, C)
        ledger.release(started)
        assert again(ledger, run) == [C.name]
        assert fresh(ledger, run) == [A.name, B.name]
        ledger.pause(run)
        for shard in (A, C):
            assert ledger.claim(run, shard.name, "w1") is Refusal.PAUSED

        ledger.resume(run)

        due = ledger.take_due(run, room=10)
        assert (due.again, due.fresh) == ([C.name], [A.name]), "the message of the other one is still in the queue"

    def test_enqueueing_or_retrying_does_not_resume_it(self, ledger: Ledger, run: str, spec: RunSpec) -> None:
        ledger.pause(run)

        ledger.create_run(spec, [A, B, C], now=time.time())
        ledger.retry(run)

        assert ledger.pause_reason(run) == ""


class TestTheEndOfAPause:
    def test_resuming_goes_on_where_it_stopped(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.pause(run)
        ledger.release(claim)

        assert ledger.resume(run)

        assert ledger.pause_reason(run) is None
        assert again(ledger, run) == [A.name]
        assert claimed(ledger, run).attempt == 1, "a pause does not count as an attempt"

    def test_so_does_the_publication_of_a_run_whose_last_shards_were_done_meanwhile(
        self, ledger: Ledger, run: str
    ) -> None:
        claims = [claimed(ledger, run, shard) for shard in (A, B, C)]
        ledger.pause(run)
        for claim in claims:
            ledger.complete(claim, a_receipt(run, claim.shard))

        ledger.record_publication(run, Publication(uri="x", commit="", shards=3))

        assert ledger.pause_reason(run) is None


class TestWhatCannotBePaused:
    def test_a_cancelled_run(self, ledger: Ledger, run: str) -> None:
        ledger.cancel(run)

        with pytest.raises(UsageError, match=f"is cancelled, so it is not paused. Resume it: producer retry {run}"):
            ledger.pause(run)

    def test_a_run_whose_shards_are_done(self, ledger: Ledger, run: str) -> None:
        finish_all(ledger, run)

        with pytest.raises(UsageError, match="has no open shard: there is nothing left to pause"):
            ledger.pause(run)

    def test_a_published_run(self, ledger: Ledger, run: str) -> None:
        finish_all(ledger, run)
        ledger.record_publication(run, Publication(uri="x", commit="", shards=3))

        with pytest.raises(UsageError, match="is published: there is nothing left to pause"):
            ledger.pause(run)
