"""Workers and a finalizer as threads of this process: real tasks, the real ledger and real files, without a GPU or Celery.

Used for trials that take seconds, because starting processes would take most of the time. The environment must name Redis
before this module is imported, because the import creates the product's apps.
"""

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis
from celery import Celery
from kombu.entity import Queue
from kombu.exceptions import OperationalError
from stand_in import StandInScorer

from shardsift.fleet.errors import ShardsiftError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import read_settings
from shardsift.producer.finalizer import Publisher, sweep
from shardsift.worker.app import app as worker_app
from shardsift.worker.service import ipc
from shardsift.worker.service.child import ScoringChild
from shardsift.worker.service.task import score_shard_task

ROWS_A_BATCH = 4
_AWAY = (redis.RedisError, OperationalError, OSError, ShardsiftError)  # while Redis is down
_PAUSE_SECONDS = 0.05
Fields = dict[str, Any]
logger = logging.getLogger(__name__)


class _Child(ScoringChild):
    """The scoring child of a worker thread. Threads cannot install signal handlers."""

    def install_signal_handlers(self) -> None: ...


class SimulatedFleet:
    """A fleet of threads that serve the queue of a scorer. `surprises` collects unexpected exceptions."""

    def __init__(self, queue: str, *, workers: int, seconds_a_batch: float, work_log: Path) -> None:
        self._queue = queue
        self._settings = read_settings()
        self._ledger = Ledger.connect(self._settings)
        self._scorers = {queue: StandInScorer("cpu", work_log, ROWS_A_BATCH, seconds_a_batch)}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(f"w{number}",)) for number in range(workers)]
        self._threads += [threading.Thread(target=action) for action in (self._sweep, self._publish)]
        self.surprises: list[Exception] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[ipc.FOLDER] = folder
            for thread in self._threads:
                thread.start()
            try:
                yield
            finally:
                self._stopping.set()
                for thread in self._threads:
                    thread.join()
                self._ledger.redis.close()

    def _work(self, name: str) -> None:
        request = SimpleNamespace(id=name, hostname=f"{name}@simulated")
        with Path(os.devnull).open("w") as crash_report:
            child = _Child(self._settings, self._scorers, self._ledger, crash_report)
            child.stopping = self._stopping
            task = SimpleNamespace(app=worker_app, child=child, request=request)
            self._consume(worker_app, self._queue, lambda fields: score_shard_task.run.__func__(task, **fields))
            child.in_hand.drain()

    def _publish(self) -> None:
        """Publish with a new Publisher each time. Its state only avoids unnecessary checks, so losing it must change nothing."""
        while not self._stopping.wait(self._settings.sweep_seconds):
            self._survive(Publisher(self._ledger, self._settings).publish_ready)

    def _sweep(self) -> None:
        while not self._stopping.wait(self._settings.sweep_seconds):
            self._survive(lambda: sweep(worker_app, self._ledger, self._settings))

    def _consume(self, app: Celery, queue: str, act: Callable[[Fields], object]) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            self._survive(lambda: self._consume_connected(app, queue, act))

    def _consume_connected(self, app: Celery, queue: str, act: Callable[[Fields], object]) -> None:
        """Consume until stopped. Raises the errors of a broken connection."""
        with app.connection_for_read() as connection, connection.channel() as channel:
            messages = Queue(queue)(channel)
            messages.queue_declare()
            while not self._stopping.is_set():
                if message := messages.get(accept=["json"]):
                    fields = message.decode()[1]
                    self._survive(partial(act, fields))
                    message.ack()
                else:
                    self._stopping.wait(_PAUSE_SECONDS)

    def _survive(self, action: Callable[[], object]) -> None:
        try:
            action()
        except _AWAY as error:
            logger.warning("%s: %s", type(error).__name__, error)
        except Exception as error:
            logger.exception("Unexpected error")
            self.surprises.append(error)
