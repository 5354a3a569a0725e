"""Hold a shard's lease while it is scored, and find out between batches whether to stop.

A thread renews the lease, so that it does not expire during a long batch. If Redis does not answer or has lost the run,
scoring continues. If Redis answers that the lease is lost, scoring ends. The fencing token keeps late writers out. If
there is no progress for too long, the thread stops renewing and the watchdog ends the process, so that a hung device
does not hold its shard.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

import redis

from shardsift.fleet.errors import LeaseLost, RunUnknown, Stopped
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.process.redis_away import ABOUT_REDIS
from shardsift.fleet.run.receipt import AttemptReport, Phase
from shardsift.worker.service.device_meter import DeviceMeter
from shardsift.worker.service.watchdog import Watchdog
from shardsift.worker.shard.vitals import Progress, WindowPace

_RENEW_SECONDS = 5.0  # between renewals, which also report progress
_SPEED_RENEWALS = 13  # the speed is measured over the last minute
logger = logging.getLogger(__name__)


class Lease(Progress):
    """A context manager that renews the lease of a claim in a thread. The scorer calls `on_batch` after every batch."""

    def __init__(
        self,
        ledger: Ledger,
        claim: Claim,
        *,
        device: DeviceMeter,
        stopping: threading.Event,
        begin_next: Callable[[], None],
        watchdog: Watchdog,
        pace: WindowPace | None = None,
    ) -> None:
        """Prepare a lease. The work stops if `stopping` is set.

        `begin_next` lets the next shard begin. It may be called twice.
        """
        super().__init__(pace)
        self._ledger, self._claim = ledger, claim
        self._charted = list(claim.spec.charted)
        self._device, self._watchdog = device, watchdog
        self._stopping, self._begin_next = stopping, begin_next
        self._rows_before_window = 0
        self._rows = 0
        self._lost: LeaseLost | None = None  # why the claim is no longer valid
        self._is_paused = False  # once set, it stays, even if the run is resumed
        self._lately = deque([(time.monotonic(), 0)], maxlen=_SPEED_RENEWALS)  # times, and the rows scored by then
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_often, name=f"lease of {claim.shard.name}", daemon=True)

    def __enter__(self) -> "Lease":
        self._watchdog.start(self)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._watchdog.stop(self)

    def on_batch(self, rows_of_window: int) -> bool:
        """Note progress. Returns False if the work must stop here; `check` raises the reason. Never waits for Redis."""
        self._rows = self._rows_before_window + rows_of_window
        self.on_progress()
        return self._lost is None and not self._is_paused and not self._stopping.is_set()

    def on_window(self) -> None:
        self._rows_before_window = self._rows

    def on_launch(self) -> None:
        self._device.start()

    def on_read(self) -> None:
        self._begin_next()

    def on_launched(self) -> None:
        self._device.stop()
        self._begin_next()

    def on_progress(self) -> None:
        self._watchdog.pet(self)

    def check(self) -> None:
        if self._lost:
            raise self._lost
        if self._stopping.is_set():
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the worker is stopping.")
        if self._is_paused:
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the run is paused.")

    def _renew_often(self) -> None:
        while not self._over.wait(min(_RENEW_SECONDS, self._ledger.lease_seconds / 4)):
            if self._watchdog.has_stalled(self):
                logger.error(
                    "%s has made no progress for too long; its lease is no longer renewed",
                    self._claim.what,
                    extra=self._claim.log_fields,
                )
                return
            try:
                self._renew()
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

    def _renew(self) -> None:
        rows = self._rows
        self._is_paused |= not self._ledger.renew(self._claim, rows=rows, report=self._attempt_report(rows))

    def _attempt_report(self, rows: int) -> AttemptReport:
        now, rows = time.monotonic(), rows - self.vitals.rows_resumed
        then, rows_then = self._lately[0]
        self._lately.append((now, rows))
        seconds, use, counts = self.vitals.seconds(), self._device.use(), self.vitals.counts
        return AttemptReport(
            device=self._device.name,
            rows_per_second=round(max(0, rows - rows_then) / (now - then), 1),
            rows_written=counts.rows_in,
            rows_kept=counts.rows_kept,
            tokens=self.vitals.tokens,
            seconds=seconds,
            histograms={column: counts.histograms[column] for column in self._charted if column in counts.histograms},
            peak_share=_rounded(self._device.peak_share(seconds[Phase.DEVICE])),
            memory_share=_rounded(use.memory_share),
            busy_share=_rounded(use.busy_share),
            idle_seconds=round(self._watchdog.idle_seconds(self), 1),
            backend=self._device.backend,
        )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
