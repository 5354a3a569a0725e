"""Hold a shard's lease while it is scored, and find out between batches whether to stop.

A thread renews the lease, so a long batch does not lose it. Scoring continues while Redis does not answer or has lost the
run: only the answer "lost" ends it, and the fencing token keeps late writers out. If there is no progress for too long,
the thread stops renewing and `worker/service/watchdog.py` ends the process, so a hung device cannot hold its shard.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from fleet.attempt_report import AttemptReport, Phase
from fleet.counted import counted
from fleet.errors import Stopped
from fleet.ledger import Claim, Ledger
from worker.service.device_meter import DeviceMeter
from worker.service.renewal import Renewal
from worker.service.watchdog import Watchdog
from worker.shard.vitals import Vitals

_SPEED_RENEWALS = 13  # the speed is that of the last minute


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
        self._claim = claim
        self._device = device
        self._lately = deque([(time.monotonic(), 0)], maxlen=_SPEED_RENEWALS)  # when, and the rows scored then
        self._stopping = stopping
        self._watchdog = watchdog
        self._rows_before_window = 0
        self._rows = 0
        self._renewal = Renewal(
            ledger,
            claim,
            now=lambda: (self._rows, self._attempt_report()),
            has_stalled=lambda: watchdog.has_stalled,
            line=self._line,
            show=report,
            show_seconds=report_seconds,
        )
        self._started = time.monotonic()

    def __enter__(self) -> "Lease":
        self._watchdog.start()
        self._renewal.__enter__()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._renewal.__exit__()
        self._watchdog.stop()

    def on_batch(self, rows_of_window: int) -> bool:
        """Note progress. Returns False if the work must stop here; `check` then raises the reason. Never waits for Redis."""
        self._rows = self._rows_before_window + rows_of_window
        self.on_progress()
        return self._renewal.lost is None and not self._renewal.is_paused and not self._stopping.is_set()

    def on_window(self) -> None:
        """A window is finished. Rows that are reported from now on belong to the next one."""
        self._rows_before_window = self._rows

    def on_progress(self) -> None:
        """Note progress of any kind, so that the watchdog does not end the process."""
        self._watchdog.pet()

    def check(self) -> None:
        """Raises Stopped or LeaseLost if the work must stop here."""
        if self._renewal.lost:
            raise self._renewal.lost
        if self._stopping.is_set():
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the worker is stopping.")
        if self._renewal.is_paused:
            raise Stopped(f"Shard {self._claim.shard.name} was given back: the run is paused.")

    def _line(self) -> str:
        """The progress that Flower shows."""
        rows = self._rows
        return f"{counted(rows, 'row')}, {rows / (time.monotonic() - self._started):,.0f} rows/s"

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
            idle_seconds=round(self._watchdog.idle_seconds, 1),
        )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
