"""Scores of finished windows are stored until their shard is done, up to the limit of the run."""

import redis

from fleet.ledger import Ledger
from support.ledger_states import A, B, checkpoint_bytes, claimed, crash_by_report, end_back_off
from support.records import a_receipt


class TestCheckpoints:
    BYTES = bytes(range(256)) * 3 + b"\xff\xfe\r\n\x00"

    def test_scores_come_back_byte_for_byte(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        assert [ledger.save_scores(claim, 0, self.BYTES), ledger.save_scores(claim, 8192, b"")] == [True, True]

        assert ledger.saved_scores(claim) == {0: self.BYTES, 8192: b""}

    def test_a_run_stores_no_more_bytes_than_its_limit(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        first, second = claimed(small, run, A), claimed(small, run, B)

        saved = [
            small.save_scores(first, 0, bytes(60)),
            small.save_scores(second, 0, bytes(41)),
            small.save_scores(second, 0, bytes(40)),
            small.save_scores(first, 0, bytes(61)),
            small.save_scores(first, 0, bytes(60)),
        ]

        assert saved == [True, False, True, False, True]
        assert checkpoint_bytes(client, run) == 100
        assert (small.saved_scores(first), small.saved_scores(second)) == ({0: bytes(60)}, {0: bytes(40)})

    def test_it_outlives_a_stop_an_error_a_crash_and_a_failure(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        first = claimed(ledger, run)
        ledger.save_scores(first, 0, self.BYTES)
        ledger.release(first)
        found = []
        for end in (
            lambda: ledger.release(claimed(ledger, run)),
            lambda: ledger.retry_later(claimed(ledger, run), "network", ""),
            lambda: crash_by_report(ledger, client, run),
            lambda: ledger.fail(claimed(ledger, run), "corrupt", ""),
            lambda: ledger.retry(run),
        ):
            end()
            end_back_off(client, run)
            found.append(ledger.saved_scores(first))

        assert found == [{0: self.BYTES}] * 5
        assert ledger.saved_scores(claimed(ledger, run)) == {0: self.BYTES}

    def test_scores_without_rows_do_not_prevent_completion(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.save_scores(claim, 0, b"")

        assert ledger.complete(claim, a_receipt(run, A)) == 2
        assert ledger.counts(run).rows_in == 10

    def test_a_claim_tells_that_earlier_scores_had_no_room_here(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        first = claimed(small, run)
        small.save_scores(first, 0, bytes(101))
        small.release(first)

        assert not first.spilled
        assert claimed(small, run).spilled
        assert not claimed(small, run, B).spilled
