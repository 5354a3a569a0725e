"""The ends of an attempt: completion, stop, error or crash, and what each counts as."""

from collections.abc import Callable

import pytest
import redis

from fleet.ledger import Ledger, Refusal
from support.ledger_states import (
    A,
    claimed,
    crash_by_exception,
    crash_by_expiry,
    crash_by_report,
    end_back_off,
    redis_ms,
)


class TestErrors:
    """Errors of the network, a disk or a service, which may go away by themselves."""

    def test_each_wait_is_four_times_as_long_up_to_ten_minutes_and_the_eighth_error_fails(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        waits = []
        for number in range(1, 8):
            assert ledger.retry_later(claimed(ledger, run), f"network {number}", "") == 3
            due_ms = client.zscore(f"shardsift:run:{run}:waiting", A.name)
            waits.append((due_ms - redis_ms(client)) / 1000)
            end_back_off(client, run)
        open_shards = ledger.retry_later(claimed(ledger, run), "network 8", "trace 8")

        assert waits == pytest.approx([5, 20, 80, 320, 600, 600, 600], abs=2)
        assert open_shards == 2
        (failure,) = ledger.failures(run)
        assert (failure.shard, failure.error, failure.traceback) == (A.name, "network 8", "trace 8")
        assert (failure.worker, failure.attempts) == ("w1", 8)
        assert ledger.claim(run, A.name, "w2") is Refusal.FAILED


class TestCrashes:
    @pytest.mark.parametrize(
        ("crash", "error", "traceback"),
        [
            (crash_by_expiry, "Its worker vanished: the lease expired without a sign of life.", ""),
            (crash_by_report, "killed by signal 9", "the child's last words"),
            (crash_by_exception, "KeyError: 7", "trace"),
        ],
    )
    def test_the_third_crash_fails_the_shard(
        self,
        ledger: Ledger,
        client: redis.Redis,
        run: str,
        crash: Callable[..., None],
        error: str,
        traceback: str,
    ) -> None:
        for number in (1, 2, 3):
            assert ledger.counts(run).failed == 0
            crash(ledger, client, run, worker=f"w{number}")

        (failure,) = ledger.failures(run)
        assert (failure.shard, failure.error, failure.traceback) == (A.name, error, traceback)
        assert (failure.worker, failure.attempts) == ("w3", 3)
        assert ledger.claim(run, A.name, "w4") is Refusal.FAILED
        assert ledger.counts(run).open == 2


class TestCrashesBetweenProgress:
    def test_a_shard_that_has_more_windows_after_each_crash_is_not_failed(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for window in range(10):
            claim = claimed(ledger, run)
            ledger.save_scores(claim, window * 8192, b"scores")
            ledger.release(claim)
            crash_by_report(ledger, client, run)
            crash_by_report(ledger, client, run)

        assert ledger.counts(run).failed == 0

    def test_errors_between_which_a_shard_gets_further_do_not_fail_it(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for window in range(12):
            claim = claimed(ledger, run)
            ledger.save_scores(claim, window, b"scores")
            ledger.retry_later(claim, "the network failed", "")
            end_back_off(client, run)

        assert ledger.counts(run).failed == 0
        (retry,) = ledger.retries(run, most=1)
        assert (retry.attempts, retry.errors) == (12, 1)
