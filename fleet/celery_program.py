"""Celery's worker program without messages that a user of ours cannot act on."""

import logging
import warnings
from typing import Any

from celery.apps.worker import Worker, install_worker_term_handler
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

_ABOUT_CANCELLING = r"(?s).*worker_cancel_long_running_tasks_on_connection_loss"


class QuietWorker(Worker):  # type: ignore[misc]  # Celery has no types
    """The base of the programs of workers and finalizers."""

    def on_before_init(self, **options: Any) -> None:
        # It warns root of messages that carry code. Ours are JSON; Celery refuses others (`accept_content`).
        warnings.filterwarnings("ignore", category=SecurityWarning)
        super().on_before_init(**options)

    def setup_logging(self, colorize: bool | None = None) -> Any:
        receivers = super().setup_logging(colorize)
        quieten_tasks()
        # It warns at each loss of a connection that the setting's default will change, also if the setting is set. Ours is
        # False and stays so: with True, Celery would end the process that scores, although its lease may be renewed.
        warnings.filterwarnings("ignore", _ABOUT_CANCELLING, CPendingDeprecationWarning)
        return receivers

    def install_platform_tweaks(self, worker: Any) -> None:
        super().install_platform_tweaks(worker)
        install_worker_term_handler(worker, verbose=False)  # as Celery does, without "Warm shutdown (MainProcess)"


def quieten_tasks() -> None:
    """Log no "Task … received" and "Task … succeeded", because each shard and each publication has a line of ours."""
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)
