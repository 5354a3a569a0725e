"""The thread that renews a claim while the work goes on, what the ledger answers it, and the thread that shows the progress."""

import logging
import threading
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

    After an answered renewal, `show` gets the `line` of the moment, at most once in `show_seconds`. It has a thread of its
    own, so that no renewal waits for it, or ends with it.

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
        self._line, self._show, self._show_seconds = line, show, show_seconds
        self._over, self._answered = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._renew, name=f"lease of {claim.shard.name}", daemon=True),
            threading.Thread(target=self._show_progress, name=f"progress of {claim.shard.name}", daemon=True),
        ]

    def __enter__(self) -> "Renewal[S]":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._answered.set()
        for thread in self._threads:
            thread.join()

    def renew(self) -> None:
        """Renew now. Raises LeaseLost, RunUnknown or an error of Redis."""
        rows, report = self._now()
        try:
            self.is_paused |= not self._ledger.renew(self._claim, rows=rows, report=report)
        except LeaseLost as lost:
            self.lost = lost
            raise

    def _show_progress(self) -> None:
        while self._answered.wait():
            self._answered.clear()  # before `_over` is read: `__exit__` sets it after that
            if self._over.wait(self._show_seconds):
                return
            try:
                self._show(self._line())
            except Exception:
                logger.warning(
                    "The progress of %s could not be shown in Flower",
                    _continued(self._claim.what),
                    exc_info=True,
                    extra=self._claim.log_fields,
                )

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
                self._answered.set()
            except LeaseLost:
                return
            except (redis.RedisError, RunUnknown) as error:
                logger.warning(
                    "The lease of %s could not be renewed; %s continues (%s)",
                    _continued(self._claim.what),
                    "scoring" if self._claim.noun == "run" else "training",
                    error,
                    extra=self._claim.log_fields | ABOUT_REDIS,
                )


def _continued(what: str) -> str:
    """The words within a sentence."""
    return what[0].lower() + what[1:]
