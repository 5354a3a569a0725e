"""The parent of a worker: it reports the crashes of its child, and sees to it that both are gone before the machine is.

Light, so that it answers whatever the child is at: it imports no torch.
"""

import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from billiard.exceptions import WorkerLostError
from celery import Celery
from kombu.exceptions import OperationalError
from pydantic import ValidationError

from fleet.dispatch import send_due_shards
from fleet.errors import ShardsiftError
from fleet.ledger import Ledger
from fleet.message import NOT_OURS, ScoreShard
from fleet.settings import Settings
from worker.child_signal import EXIT_STOPPED, FOLDER, STOP_SIGNAL, owner_name, take_crash_reports
from worker.spot.watch import start_watching

_CHILD_LATE_SECONDS = 0.5  # after the time in which a stopping child should have ended by itself
_PARENT_LATE_SECONDS = 1.0
logger = logging.getLogger(__name__)


class Parent:
    """What Celery's main process does beside its own work."""

    def __init__(self, app: Celery, consumer: Any, settings: Settings, ledger: Ledger) -> None:
        """Must not fail, not even where Redis is away just now: Celery would swallow it, and go on without a parent."""
        self._app = app
        self._hostname = str(consumer.hostname)
        self._pool = consumer.pool
        self._settings = settings
        self._ledger = ledger
        self._seconds_left: float | None = None

    def watch_for_spot_notice(self) -> None:
        start_watching(self._settings, self._on_notice)

    def _on_notice(self, notice: Any) -> None:
        self._seconds_left = notice.seconds_left
        os.kill(os.getpid(), signal.SIGTERM)

    def stop_child(self) -> None:
        """Runs inside Celery's signal handler: tell the child to stop between two batches, and no more."""
        self._signal_child(STOP_SIGNAL)
        threading.Thread(target=self._end_in_time, name="end in time", daemon=True).start()

    def _end_in_time(self) -> None:
        """A child that cannot even give its shard back is killed, and a parent that waits for it all the same leaves."""
        never = threading.Event()
        never.wait(self._stop_seconds)
        self._signal_child(STOP_SIGNAL)  # the second: give the shard back at once
        never.wait(_CHILD_LATE_SECONDS)
        self._signal_child(signal.SIGKILL)
        never.wait(_PARENT_LATE_SECONDS)
        logger.warning("Leaving without a farewell: the time for stopping is over")
        os._exit(EXIT_STOPPED)

    @property
    def _stop_seconds(self) -> float:
        """A spot notice may leave less time than the settings."""
        late = _CHILD_LATE_SECONDS + _PARENT_LATE_SECONDS
        left = self._settings.stop_seconds if self._seconds_left is None else self._seconds_left - late
        return max(0.0, min(self._settings.stop_seconds, left))

    def _signal_child(self, number: signal.Signals) -> None:
        for process in self._pool._pool._pool:
            if process.pid:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(process.pid, number)

    def count_refused(self) -> None:
        try:
            self._ledger.count_refused(NOT_OURS)
        except redis.RedisError as problem:
            logger.warning("Not counted: %s", problem)

    def report_crash(self, exception: BaseException | None, fields: dict[str, Any]) -> None:
        """Have the shard of a dead child sent anew at once. If this fails, the end of its lease does the same."""
        if not isinstance(exception, WorkerLostError):
            return
        error = f"The process that scored it died: {exception}"
        trace = take_crash_reports(Path(os.environ[FOLDER]))
        try:
            message = ScoreShard.understood(fields)
            owner = owner_name(self._hostname, os.getpid())
            logger.error("Shard %s of %s: %s\n%s", message.shard, message.run_id, error, trace)
            self._ledger.report_crash(message.run_id, message.shard, owner, error, trace)
            send_due_shards(self._app, self._ledger, message.run_id)
        except (redis.RedisError, OperationalError, ShardsiftError, ValidationError) as problem:
            logger.warning("Left to the sweep: %s", problem)
