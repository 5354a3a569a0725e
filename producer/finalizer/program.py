"""Celery's worker program with the sweep in a thread beside it. Without Redis it ends at startup, with one line."""

import os
from typing import Any

from celery import signals

from fleet.celery_program import QuietWorker
from fleet.command_line import USAGE
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.rights import PRODUCER
from fleet.log_format import log_to_stderr, write_last_line
from fleet.settings import read_settings
from producer.finalizer.stop import end_without_redis
from producer.finalizer.sweep import Sweeper
from producer.metrics.serve import serve_metrics

ONLY_RUN = "SHARDSIFT_FINALIZER_RUN"  # set by `producer run`: sweep this run and leave others alone


class FinalizerWorker(QuietWorker):
    """What `producer finalizer` runs."""

    sweeper: Sweeper

    def on_before_init(self, **options: Any) -> None:
        """Connect before Celery starts: it swallows errors of `worker_ready`, so a Redis that is away would stop the sweep."""
        self.sweeper = _sweeper(self.app)
        signals.task_unknown.connect(self.sweeper.count_refused, weak=False)
        signals.task_rejected.connect(self.sweeper.count_refused, weak=False)
        signals.worker_shutting_down.connect(self._on_shutting_down, weak=False)
        super().on_before_init(**options)

    def _on_shutting_down(self, **_: Any) -> None:
        """Runs in Celery's handler of SIGTERM and SIGINT."""
        self.sweeper.stop()
        if url := read_settings().ledger_url:
            end_without_redis(url)

    def emit_banner(self) -> None:
        """Nothing: the next two lines of the log name Redis and say that this finalizer is ready."""

    def on_consumer_ready(self, consumer: Any) -> None:
        super().on_consumer_ready(consumer)
        self.sweeper.start()


def _sweeper(app: Any) -> Sweeper:
    settings, only_run = read_settings(), os.environ.get(ONLY_RUN)
    log_to_stderr()  # until Celery sets up its logs
    try:
        ledger = Ledger.connect(settings, wait_seconds=settings.redis_wait_seconds, role=PRODUCER)
        if settings.metrics_port and not only_run:
            serve_metrics(ledger, address=settings.metrics_address, port=settings.metrics_port)
    except UsageError as error:
        write_last_line("finalizer", str(error))
        raise SystemExit(USAGE) from error
    return Sweeper(app, ledger, settings, only_run=only_run)
