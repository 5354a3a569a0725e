"""Celery's worker program with the sweep in a thread beside it. Without Redis it ends at startup, with one line."""

import os
import sys
from typing import Any

from celery import signals
from celery.apps.worker import Worker

from fleet.command_line import USAGE
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.settings import read_settings
from producer.finalizer.sweep import Sweeper

ONLY_RUN = "SHARDSIFT_FINALIZER_RUN"  # set by `producer run`: sweep this run and leave others alone


class FinalizerWorker(Worker):  # type: ignore[misc]  # Celery has no types
    """What `producer finalizer` runs."""

    sweeper: Sweeper

    def on_before_init(self, **options: Any) -> None:
        """Connect before Celery starts: it swallows errors of `worker_ready`, so a Redis that is away would stop the sweep."""
        self.sweeper = _sweeper(self.app)
        signals.task_unknown.connect(self.sweeper.count_refused, weak=False)
        signals.task_rejected.connect(self.sweeper.count_refused, weak=False)
        signals.worker_shutting_down.connect(self.sweeper.stop, weak=False)
        super().on_before_init(**options)

    def on_consumer_ready(self, consumer: Any) -> None:
        super().on_consumer_ready(consumer)
        self.sweeper.start()


def _sweeper(app: Any) -> Sweeper:
    settings = read_settings()
    try:
        ledger = Ledger.connect(settings)
    except UsageError as error:
        sys.stderr.write(f"finalizer: {error}\n")
        raise SystemExit(USAGE) from error
    return Sweeper(app, ledger, settings, only_run=os.environ.get(ONLY_RUN))
