"""Hold the lease of a training, and find out after each step whether to stop. See `worker/service/lease.py`.

The watchdog guards the steps only. Before them, the base model is loaded and the texts are tokenised, and after them the model is
uploaded, however long that takes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

import redis

from fleet.attempt_report import AttemptReport
from fleet.errors import Cancelled, RunUnknown, ShardsiftError
from fleet.ledger import Claim, Ledger
from fleet.training.progress import TrainProgress
from fleet.training.task import FleetTraining
from worker.service.renewal import Renewal
from worker.service.waiting import wait_for_redis
from worker.service.watchdog import Watchdog

_SPEED_STEPS = 60  # the speed is that of the last steps


class TrainingLease:
    """A context manager, and the `Watcher` of a training."""

    def __init__(
        self,
        ledger: Ledger[FleetTraining],
        claim: Claim[FleetTraining],
        *,
        device: str,
        stopping: threading.Event,
        report: Callable[[str], None],
        report_seconds: float,
        watchdog: Watchdog,
    ) -> None:
        self._device, self._stopping = device, stopping
        self._line = ""  # the progress that Flower shows
        self._watchdog, self._is_stepping = watchdog, False
        self._progress, self._rows, self._checkpoint = TrainProgress(), 0, 0
        self._alive = time.monotonic()  # when it last took a step, or did a batch of texts
        self._lately: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS)  # when, and the rows trained on by then
        self._renewal = Renewal(
            ledger,
            claim,
            now=self._now,
            has_stalled=lambda: self._is_stepping and watchdog.has_stalled,
            line=lambda: self._line,
            show=report,
            show_seconds=report_seconds,
        )

    def __enter__(self) -> "TrainingLease":
        self._renewal.__enter__()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._renewal.__exit__()
        self._end_steps()

    def on_progress(self, progress: TrainProgress, rows: int) -> None:
        if not self._is_stepping:
            self._is_stepping = True
            self._watchdog.start()
        self._watchdog.pet()
        self._progress, self._rows, self._alive = progress, rows, time.monotonic()
        self._lately.append((self._alive, rows))
        loss = "" if progress.loss is None else f": loss {progress.loss:.4f}"
        self._line = f"step {progress.step:,} of {progress.planned_steps:,}{loss}"

    def on_checkpoint(self, step: int) -> None:
        self._checkpoint = max(self._checkpoint, step)

    def on_sign_of_life(self, doing: str = "") -> None:
        self._alive = time.monotonic()
        if self._is_stepping:
            self._watchdog.pet()
        if doing and not self._is_stepping:
            self._progress = TrainProgress(doing=doing)
            self._line = doing

    @property
    def wants_stop(self) -> bool:
        """A cancelled training stops with a checkpoint too: it may be resumed, and is still held by this worker."""
        return self._stopping.is_set() or self._renewal.is_paused or isinstance(self._renewal.lost, Cancelled)

    @property
    def why_stopped(self) -> str:
        if self._stopping.is_set():
            return "the worker is stopping"
        return "it is paused" if self._renewal.is_paused else "it is cancelled"

    def tell_stop(self) -> None:
        """Tell the ledger of the last step and its checkpoint. Only the status needs it, so a Redis that is away is no error."""
        with suppress(redis.RedisError, ShardsiftError):
            self._renewal.renew()

    def check(self) -> None:
        lost = self._renewal.lost
        if lost and not isinstance(lost, Cancelled):
            raise lost

    def confirm(self) -> None:
        """Raises LeaseLost also if the training is cancelled: its model is not published.

        A Redis that has lost the training does not keep its model back: the same `producer train` finds it.
        """
        self._end_steps()
        with suppress(RunUnknown):
            wait_for_redis(self._renewal.renew, self._stopping)

    def _end_steps(self) -> None:
        if self._is_stepping:
            self._is_stepping = False
            self._watchdog.stop()

    def _now(self) -> tuple[int, AttemptReport]:
        report = AttemptReport(
            device=self._device,
            rows_per_second=round(self._speed(), 1),
            rows_written=0,
            rows_kept=0,
            tokens=0,
            seconds={},
            training=replace(self._progress, checkpoint=self._checkpoint),
            idle_seconds=round(time.monotonic() - self._alive, 1),
        )
        return self._rows, report

    def _speed(self) -> float:
        lately = list(self._lately)
        if len(lately) < 2 or lately[-1][0] <= lately[0][0]:
            return 0.0
        return (lately[-1][1] - lately[0][1]) / (lately[-1][0] - lately[0][0])
