"""A cancelled run stops and can be resumed. Failed shards can be retried."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fleet.errors import LeaseLost
from fleet.ledger import Claim, Ledger, Refusal
from fleet.run.spec import RunSpec
from support.ledger_states import (
    A,
    B,
    C,
    claimed,
    crash_by_expiry,
    crash_by_report,
    end_back_off,
    fresh,
)
from support.records import a_receipt, a_shard


class TestCancelAndRetry:
    def test_a_cancelled_run_stops_its_workers_and_sends_nothing(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        ledger.cancel(run)

        assert ledger.is_cancelled(run)
        with pytest.raises(LeaseLost, match="the run was cancelled"):
            ledger.renew(claim, rows=1)
        assert ledger.claim(run, B.name, "w2") is Refusal.CANCELLED
        assert len(ledger.take_due(run, room=10)) == 0

    @pytest.mark.parametrize("how", ["retry", "create_run"])
    def test_a_cancelled_run_is_resumed(self, ledger: Ledger, spec: RunSpec, run: str, how: str) -> None:
        ledger.cancel(run)

        if how == "retry":
            ledger.retry(run)
        else:
            ledger.create_run(spec, [A, B, C], now=time.time())

        assert not ledger.is_cancelled(run)
        assert fresh(ledger, run) == [A.name, B.name, C.name]

    def test_a_retried_shard_has_all_its_tries_again(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        for _ in range(7):
            ledger.retry_later(claimed(ledger, run), "network", "")
            end_back_off(client, run)
        for _ in range(3):
            crash_by_report(ledger, client, run)

        ledger.retry(run)

        for _ in range(7):
            ledger.retry_later(claimed(ledger, run), "network", "")
            end_back_off(client, run)
        for _ in range(2):
            crash_by_report(ledger, client, run)
        assert ledger.counts(run).failed == 0

    def test_a_retried_shard_has_forgotten_its_error(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "trace")
        ledger.retry(run)

        for _ in range(3):
            crash_by_expiry(ledger, client, run)

        (failure,) = ledger.failures(run)
        assert "vanished" in failure.error
        assert failure.traceback == ""

    def test_rows_count_once_however_a_retry_of_all_and_the_workers_interleave(
        self, ledger: Ledger, spec: RunSpec
    ) -> None:
        shards = [a_shard(f"{number:03}") for number in range(500)]
        run = spec.run_id
        ledger.create_run(spec, shards, now=1.0)
        ledger.restore(run, [a_receipt(run, shard) for shard in shards])

        def score_what_is_free(owner: str) -> None:
            for shard in shards:
                claim = ledger.claim(run, shard.name, owner)
                if isinstance(claim, Claim):
                    ledger.complete(claim, a_receipt(run, shard))

        with ThreadPoolExecutor(3) as threads:
            retried = threads.submit(ledger.retry, run, done_too=True)
            list(threads.map(score_what_is_free, ("w1", "w2")))

        counts = ledger.counts(run)
        assert retried.result() == 500
        assert (counts.rows_in, counts.rows_errored) == (10 * counts.done, counts.done)
        assert counts.done + counts.queued == 500
