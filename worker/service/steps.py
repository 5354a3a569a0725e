"""What an attempt did and when, for its trace. Knows nothing of how traces are sent."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from worker.shard.vitals import Vitals


class Steps:
    """The steps of one attempt follow each other: claim, score, stage, record. Times are Unix seconds.

    It begins when the claim is granted; `asked_at` is when the worker asked for it.
    """

    def __init__(self, *, asked_at: float) -> None:
        self.asked_at = asked_at
        self.claimed_at = time.time()
        self.worked_until: float | None = None  # None if the work did not begin
        self.ended_at: float | None = None
        self.seconds: Mapping[str, float] = {}  # of each phase of the work
        self.rows = 0
        self.tokens = 0
        self.outcome = ""
        self.error: Exception | None = None

    @contextmanager
    def of_work(self, vitals: Vitals) -> Iterator[None]:
        """The block reads, scores, writes and stages."""
        try:
            yield
        finally:
            self.worked_until = time.time()
            self.seconds, self.rows, self.tokens = vitals.seconds(), vitals.rows_written, vitals.tokens

    def end(self, outcome: str, error: Exception | None = None) -> None:
        """`outcome` is done, stopped, lost, unrecorded or failed. `error` is why it failed."""
        self.ended_at, self.outcome, self.error = time.time(), outcome, error
