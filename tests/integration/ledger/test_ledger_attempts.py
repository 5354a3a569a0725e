"""The ends of an attempt: completion, stop, error or crash, and what each counts as."""

from collections.abc import Callable

import pytest
import redis

from fleet.errors import LeaseLost
from fleet.ledger import Ledger, Refusal
from support.ledger_states import (
    A,
    B,
    C,
    again,
    claimed,
    crash_by_exception,
    crash_by_expiry,
    crash_by_report,
    end_back_off,
    fresh,
    redis_ms,
)
from support.records import a_receipt


class TestCompletion:
    def test_it_returns_the_number_of_open_shards(self, ledger: Ledger, run: str) -> None:
        fresh(ledger, run)

        assert [ledger.complete(claimed(ledger, run, s), a_receipt(run, s)) for s in (A, B, C)] == [2, 1, 0]

    def test_receipts_come_back_whole_in_the_order_of_names(self, ledger: Ledger, run: str) -> None:
        for shard in (C, A, B):
            ledger.complete(claimed(ledger, run, shard), a_receipt(run, shard))

        assert list(ledger.receipts(run)) == [a_receipt(run, shard) for shard in (A, B, C)]

    def test_an_earlier_error_is_forgotten(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "trace")
        end_back_off(client, run)

        ledger.complete(claimed(ledger, run), a_receipt(run, A))

        assert ledger.failures(run) == []
        assert client.exists(f"shardsift:run:{run}:attempts:{A.name}") == 0


class TestStops:
    def test_a_released_shard_is_free_at_once_and_its_attempt_does_not_count(self, ledger: Ledger, run: str) -> None:
        for owner in ("w1", "w2", "w3", "w4", "w5"):
            claim = claimed(ledger, run, owner=owner)
            assert claim.attempt == 1
            ledger.release(claim)

        assert ledger.counts(run).queued == 3

    def test_ending_all_workers_at_once_fails_no_shard(self, ledger: Ledger, run: str) -> None:
        for _ in range(5):
            claimed(ledger, run)
            ledger.forget_messages(run)
            assert again(ledger, run) == [A.name]

        assert ledger.counts(run).failed == 0
        assert claimed(ledger, run).attempt == 1


class TestErrors:
    """Errors of the network, a disk or a service, which may go away by themselves."""

    def test_a_shard_waits_after_an_error(self, ledger: Ledger, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")

        assert ledger.claim(run, A.name, "w2") is Refusal.WAITING
        assert again(ledger, run) == []
        assert ledger.counts(run).queued == 3

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

    def test_a_shard_whose_wait_is_over_is_due(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")
        end_back_off(client, run)

        assert again(ledger, run) == [A.name]
        assert claimed(ledger, run).attempt == 2


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

    def test_a_worker_whose_child_dies_each_time_fails_the_shard_with_its_fourth_claim(
        self, ledger: Ledger, run: str
    ) -> None:
        assert [claimed(ledger, run).attempt for _ in range(3)] == [1, 2, 3]

        assert ledger.claim(run, A.name, "w1") is Refusal.FAILED
        (failure,) = ledger.failures(run)
        assert (failure.worker, failure.attempts) == ("w1", 3)
        assert failure.error == "The process that scored it exited unexpectedly."

    def test_a_crash_by_an_exception_waits_like_an_error(self, ledger: Ledger, run: str) -> None:
        ledger.record_crash(claimed(ledger, run), "KeyError: 7", "trace")

        assert ledger.claim(run, A.name, "w2") is Refusal.WAITING

    def test_a_reported_crash_frees_the_shard_at_once(self, ledger: Ledger, run: str) -> None:
        dead = claimed(ledger, run)

        assert ledger.report_crash(run, A.name, "w1", "killed by signal 9") == 3

        with pytest.raises(LeaseLost):
            ledger.renew(dead, rows=1)
        assert claimed(ledger, run, owner="w2").attempt == 2

    def test_the_setting_limits_the_number_of_crashes(self, client: redis.Redis, run: str) -> None:
        strict = Ledger(client, max_attempts=1)

        crash_by_report(strict, client, run)

        assert strict.counts(run).failed == 1


CRASHES = [crash_by_expiry, crash_by_report, crash_by_exception]


class TestCrashesBetweenProgress:
    @pytest.mark.parametrize("crash", CRASHES)
    def test_a_shard_that_has_more_windows_after_each_crash_is_not_failed(
        self, ledger: Ledger, client: redis.Redis, run: str, crash: Callable[..., None]
    ) -> None:
        for window in range(10):
            claim = claimed(ledger, run)
            ledger.save_scores(claim, window * 8192, b"scores")
            ledger.release(claim)
            crash(ledger, client, run)
            crash(ledger, client, run)

        assert ledger.counts(run).failed == 0

    def test_after_progress_three_crashes_fail_it_as_before(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        crash_by_report(ledger, client, run)
        crash_by_report(ledger, client, run)
        ledger.save_scores(claimed(ledger, run), 0, b"scores")
        ledger.report_crash(run, A.name, "w1", "killed by signal 9")
        crash_by_report(ledger, client, run)
        assert ledger.counts(run).failed == 0

        crash_by_report(ledger, client, run)

        (failure,) = ledger.failures(run)
        assert (failure.attempts, failure.crashes) == (5, 3)

    def test_with_a_limit_of_one_crash_progress_does_not_help(self, client: redis.Redis, run: str) -> None:
        strict = Ledger(client, max_attempts=1)
        strict.save_scores(claimed(strict, run), 0, b"scores")

        strict.report_crash(run, A.name, "w1", "killed by signal 9")

        assert strict.counts(run).failed == 1

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

    def test_errors_without_progress_between_them_fail_it_as_before(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for _ in range(8):
            claim = claimed(ledger, run)
            ledger.save_scores(claim, 0, b"scores")
            ledger.retry_later(claim, "the network failed", "")
            end_back_off(client, run)

        assert ledger.counts(run).failed == 1
