"""No worker takes a shard of a paused run. Those at work give theirs back, and nothing is lost or counted as a failure."""

import pytest

from fleet.errors import UsageError
from fleet.ledger import Ledger, Publication, Refusal
from support.ledger_states import A, B, C, claimed
from support.records import a_receipt


class TestPaused:
    def test_no_shard_is_sent_or_claimed(self, ledger: Ledger, run: str) -> None:
        ledger.pause(run)

        assert len(ledger.take_due(run, room=10)) == 0
        assert ledger.claim(run, A.name, "w1") is Refusal.PAUSED
        assert run not in [opened.run_id for opened in ledger.open_runs()]


def test_a_run_that_is_cancelled_done_or_published_is_not_paused(ledger: Ledger, run: str) -> None:
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
