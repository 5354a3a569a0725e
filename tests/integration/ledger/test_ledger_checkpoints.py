"""Scores of finished windows are stored until their shard is done, up to the limit of the run."""

import redis

from fleet.ledger import Ledger
from support.ledger_states import A, B, checkpoint_bytes, claimed


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

    def test_a_claim_tells_that_earlier_scores_had_no_room_here(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        first = claimed(small, run)
        small.save_scores(first, 0, bytes(101))
        small.release(first)

        assert not first.spilled
        assert claimed(small, run).spilled
        assert not claimed(small, run, B).spilled
