"""Hold a shard's lease while it is scored, and find out between batches whether to stop.

A thread renews the lease, so a long batch does not lose it. Scoring continues while Redis does not answer or has lost the
run: only the answer "lost" ends it, and the fencing token keeps late writers out. If there is no progress for too long,
the thread stops renewing and `worker/service/watchdog.py` ends the process, so a hung device cannot hold its shard.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

import redis

from fleet.attempt_report import AttemptReport, Phase
from fleet.counted import counted
from fleet.errors import LeaseLost, RunUnknown, Stopped
from fleet.ledger import Claim, Ledger
from fleet.redis_away import ABOUT_REDIS
from worker.service.device_meter import DeviceMeter
from worker.service.watchdog import Watchdog
from worker.shard.vitals import Vitals

_RENEW_SECONDS = 5.0  # between renewals; they also report the rows for the progress bar
_SPEED_RENEWALS = 13  # the speed is that of the last minute
logger = logging.getLogger(__name__)


class Lease:
    """A context manager that renews a claim. The scorer calls `on_batch` after every batch."""

    def __init__(
        self,
        ledger: Ledger,
        claim: Claim,
        *,
        device: DeviceMeter,
        stopping: threading.Event,
        report: Callable[[str], None],
        report_seconds: float,
        watchdog: Watchdog,
    ) -> None:
        self.vitals = Vitals()
        self._ledger = ledger
        self._claim = claim
        self._device = device
        self._lately = deque([(time.monotonic(), 0)], maxlen=_SPEED_RENEWALS)  # when, and the rows scored then
        self._stopping = stopping
        self._report = report
        self._report_seconds = report_seconds
        self._watchdog = watchdog
        self._rows_before_window = 0
        self._rows = 0
        self._lost: LeaseLost | None = None
        self._paused = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of {claim.shard.name}", daemon=True)
        self._started = self._reported = time.monotonic()

    def __enter__(self) -> "Lease":
        self._watchdog.start()
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._watchdog.stop()

    def on_batch(self, rows_of_window: int) -> bool:
        """Note progress. Returns False if the work must stop here; `check` then raises the reason."""
        self._rows = self._rows_before_window + rows_of_window
        self.on_progress()
        if time.monotonic() - self._reported >= self._report_seconds:
            self._reported = time.monotonic()
            self._report(f"{counted(self._rows, 'row')}, {self._rows / (self._reported - self._started):,.0f} rows/s")
        return self._lost is None and not self._paused and not self._stopping.is_set()

    def on_window(self) -> None:
        """A window is finished. Rows that are reported from now on belong to the next one."""
        self._rows_before_window = self._rows

    def on_progress(self) -> None:
        """Note progress of any kind, so that the watchdog does not end the process."""
        self._watchdog.pet()

    def check(self) -> None:
        """Raises Stopped or LeaseLost if the work must stop here."""
        if self._lost:
            raise self._lost
        if self._stopping.is_set():
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the worker is stopping.")
        if self._paused:
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the run is paused.")

    def _attempt_report(self) -> AttemptReport:
        now, rows = time.monotonic(), self._rows - self.vitals.rows_resumed
        then, rows_then = self._lately[0]
        self._lately.append((now, rows))
        seconds, use = self.vitals.seconds(), self._device.use()
        return AttemptReport(
            device=self._device.name,
            rows_per_second=round(max(0, rows - rows_then) / (now - then), 1),
            rows_written=self.vitals.rows_written,
            rows_kept=self.vitals.rows_kept,
            tokens=self.vitals.tokens,
            seconds=seconds,
            histograms=self.vitals.histograms,
            peak_share=_rounded(self._device.peak_share(seconds[Phase.DEVICE])),
            memory_share=_rounded(use.memory_share),
            busy_share=_rounded(use.busy_share),
        )

    def _renew(self) -> None:
        while not self._over.wait(min(_RENEW_SECONDS, self._ledger.lease_seconds / 4)):
            if self._watchdog.has_stalled:
                logger.error(
                    "Shard %s has made no progress for too long; its lease is no longer renewed",
                    self._claim.shard.name,
                    extra=self._claim.log_fields,
                )
                return
            try:
                # Once paused, the work stops here, even if the run is resumed before the batch ends.
                self._paused |= not self._ledger.renew(self._claim, rows=self._rows, report=self._attempt_report())
            except LeaseLost as lost:
                self._lost = lost
                return
            except (redis.RedisError, RunUnknown) as error:
                logger.warning(
                    "The lease of shard %s could not be renewed; scoring continues (%s)",
                    self._claim.shard.name,
                    error,
                    extra=self._claim.log_fields | ABOUT_REDIS,
                )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
