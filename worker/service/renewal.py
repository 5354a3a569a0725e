"""The thread that renews a claim while the work goes on, and what the ledger answers it."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic

import redis

from fleet.attempt_report import AttemptReport
from fleet.errors import LeaseLost, RunUnknown
from fleet.ledger import Claim, Ledger
from fleet.ledger.kinds import S
from fleet.redis_away import ABOUT_REDIS

_RENEW_SECONDS = 5.0  # between renewals; they also report the rows for the progress bar
logger = logging.getLogger(__name__)


class Renewal(Generic[S]):
    """A context manager. `now` gives the rows and the report of each renewal, `has_stalled` ends it without a word.

    After an answered renewal, `show` gets the `line` of the moment, at most once in `show_seconds`. It may wait for Redis.

    `lost` is why the claim is no longer valid. Once `is_paused`, it stays so, even if the run is resumed meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger[S],
        claim: Claim[S],
        *,
        now: Callable[[], tuple[int, AttemptReport]],
        has_stalled: Callable[[], bool],
        line: Callable[[], str],
        show: Callable[[str], None],
        show_seconds: float,
    ) -> None:
        self.lost: LeaseLost | None = None
        self.is_paused = False
        self._ledger, self._claim, self._now, self._has_stalled = ledger, claim, now, has_stalled
        self._line, self._show, self._show_seconds, self._shown = line, show, show_seconds, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of {claim.shard.name}", daemon=True)

    def __enter__(self) -> "Renewal[S]":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def renew(self) -> None:
        """Renew now. Raises LeaseLost, RunUnknown or an error of Redis."""
        rows, report = self._now()
        try:
            self.is_paused |= not self._ledger.renew(self._claim, rows=rows, report=report)
        except LeaseLost as lost:
            self.lost = lost
            raise

    def _show_progress(self) -> None:
        if time.monotonic() - self._shown >= self._show_seconds:
            self._shown = time.monotonic()
            self._show(self._line())

    def _renew(self) -> None:
        while not self._over.wait(min(_RENEW_SECONDS, self._ledger.lease_seconds / 4)):
            if self._has_stalled():
                logger.error(
                    "%s has made no progress for too long; its lease is no longer renewed",
                    self._claim.what,
                    extra=self._claim.log_fields,
                )
                return
            try:
                self.renew()
                self._show_progress()
            except LeaseLost:
                return
            except (redis.RedisError, RunUnknown) as error:
                what = self._claim.what
                logger.warning(
                    "The lease of %s could not be renewed; %s continues (%s)",
                    what[0].lower() + what[1:],
                    "scoring" if self._claim.noun == "run" else "training",
                    error,
                    extra=self._claim.log_fields | ABOUT_REDIS,
                )
