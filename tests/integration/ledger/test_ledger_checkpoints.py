"""Scores of finished windows are stored until their shard is done, up to the limit of the run."""

from fleet.ledger import Ledger
from support.ledger_states import claimed


class TestCheckpoints:
    BYTES = bytes(range(256)) * 3 + b"\xff\xfe\r\n\x00"

    def test_scores_come_back_byte_for_byte(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        assert [ledger.save_scores(claim, 0, self.BYTES), ledger.save_scores(claim, 8192, b"")] == [True, True]

        assert ledger.saved_scores(claim) == {0: self.BYTES, 8192: b""}
