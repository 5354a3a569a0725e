"""A worker whose lease expired continues if no other worker took its shard. Otherwise it is refused."""

from dataclasses import replace

import pytest
import redis

from fleet.errors import LeaseLost
from fleet.ledger import Claim, Ledger, Refusal
from support.ledger_states import A, B, again, claimed, end_lease, refused_outputs
from support.records import a_receipt


class TestZombies:
    """Workers that come back after they were silent for longer than their lease."""

    @pytest.fixture
    def zombie(self, ledger: Ledger, client: redis.Redis, run: str) -> Claim:
        """Its lease expired, a sweep noticed, and no other worker has claimed the shard yet."""
        claim = claimed(ledger, run)
        end_lease(client, run)
        assert again(ledger, run) == [A.name]
        return claim

    def test_its_receipt_counts_if_no_other_worker_took_the_shard(
        self, ledger: Ledger, run: str, zombie: Claim
    ) -> None:
        ledger.complete(zombie, a_receipt(run, A))

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done, counts.rows_in) == (2, 0, 1, 10)


class TestLateWriters:
    """Zombies whose shard another worker has claimed."""

    @pytest.fixture
    def stale(self, ledger: Ledger, client: redis.Redis, run: str) -> Claim:
        stale = claimed(ledger, run)
        end_lease(client, run)
        claimed(ledger, run, owner="w2")
        return stale

    def test_a_stale_token_cannot_renew(self, ledger: Ledger, stale: Claim) -> None:
        with pytest.raises(LeaseLost, match="another attempt took it over"):
            ledger.renew(stale, rows=1)

    def test_a_stale_token_cannot_save_scores(self, ledger: Ledger, stale: Claim) -> None:
        with pytest.raises(LeaseLost):
            ledger.save_scores(stale, 0, b"late")

        assert ledger.saved_scores(stale) == {}

    def test_a_stale_token_cannot_complete_a_shard_and_that_is_counted(
        self, ledger: Ledger, run: str, stale: Claim
    ) -> None:
        before = refused_outputs(ledger)

        with pytest.raises(LeaseLost, match="finished by another attempt"):
            ledger.complete(stale, a_receipt(run, A))

        assert ledger.counts(run).done == 0
        assert list(ledger.receipts(run)) == []
        assert refused_outputs(ledger) == before + 1

    def test_a_stale_token_cannot_give_the_shard_back(self, ledger: Ledger, run: str, stale: Claim) -> None:
        ledger.release(stale)
        ledger.retry_later(stale, "slow", "")
        ledger.record_crash(stale, "odd", "")
        ledger.fail(stale, "broken", "")

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.failed) == (2, 1, 0)
        assert ledger.claim(run, A.name, "w3") is Refusal.RUNNING

    def test_a_forged_token_is_accepted_only_for_a_free_shard_that_the_ledger_may_have_forgotten(
        self, ledger: Ledger, run: str
    ) -> None:
        held = claimed(ledger, run, A)
        never_issued = replace(held, shard=B, token=f"{held.token.partition('-')[0]}-abc")

        for forged in (replace(held, token="999-abc"), never_issued, replace(held, shard=B, token="abc")):
            with pytest.raises(LeaseLost):
                ledger.renew(forged, rows=1)
            with pytest.raises(LeaseLost):
                ledger.complete(forged, a_receipt(run, forged.shard))
        ledger.renew(replace(held, shard=B, token="999-abc"), rows=1)

        assert ledger.counts(run).done == 0

    def test_a_shard_failed_for_its_crashes_takes_no_late_receipt(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for attempt in (1, 2, 3):
            last = claimed(ledger, run, owner=f"w{attempt}")
            end_lease(client, run)
            again(ledger, run)

        with pytest.raises(LeaseLost):
            ledger.complete(last, a_receipt(run, A))

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done, counts.failed) == (2, 0, 0, 1)
