"""Celery's worker program, adapted to serve the scorers of one queue.

It takes messages only while the model is loaded. Any error at startup ends it with one line on stderr.
"""

import logging
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import redis
from billiard.exceptions import WorkerLostError
from celery import Celery, bootsteps, signals
from celery.apps.worker import Worker, install_worker_term_handler
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker import state as celery_state
from celery.worker.consumer import Consumer
from celery.worker.consumer.tasks import Tasks
from celery.worker.control import Panel
from kombu.entity import Queue

from shardsift.fleet.errors import ExitCode, ShardsiftError, TransientError, UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.connect import START_SECONDS
from shardsift.fleet.process.children import end_process
from shardsift.fleet.process.logs import LINE, WORKER_NAME, log_to_stderr
from shardsift.fleet.process.redis_away import ABOUT_REDIS, as_ours, is_refusal
from shardsift.fleet.process.settings import read_settings
from shardsift.fleet.scorers.kinds import resolve_models
from shardsift.worker.service.ipc import report_end
from shardsift.worker.service.parent import Parent

# The commands of Celery's remote control that Flower needs. Others, such as `shutdown` or `add_consumer`, are ignored,
# because every client that may write to Redis could send them.
_ANSWERED = {"ping", "stats", "active", "active_queues", "reserved", "scheduled", "registered", "revoked", "conf"}
_ANSWERED |= {"enable_events", "heartbeat"}
_ABOUT_CANCELLING = r"(?s).*worker_cancel_long_running_tasks_on_connection_loss"
_REFUSED_SECONDS = 10.0  # between two attempts to read a queue that Redis refuses
_STOP_CHECK_SECONDS = 0.2
logger = logging.getLogger(__name__)


class ScorerWorker(Worker):  # type: ignore[misc]  # Celery has no types
    """The Celery worker in the main process, also under plain `celery worker`.

    `parent` holds what must survive the exit of a child process.
    """

    parent: Parent

    def on_before_init(self, **options: Any) -> None:
        """Resolve the models, so that all children load the same revisions, and consume only their queue.

        Does not use the signal `celeryd_init`, because Celery swallows the errors of its receivers.
        """
        log_to_stderr()  # until Celery sets up its logs
        self.parent = _started_parent(self.app, self.hostname)
        queue = self.parent.message_queue
        self.app.conf.task_queues = [Queue(queue, routing_key=queue)]
        self.app.conf.task_default_queue = queue
        signals.task_failure.connect(self.parent.on_task_failure, weak=False)
        signals.worker_shutting_down.connect(self.parent.on_shutting_down, weak=False)
        # Celery warns root that messages may contain code. Ours are JSON, and others are refused (`accept_content`).
        warnings.filterwarnings("ignore", category=SecurityWarning)
        Panel.data = _Commands({command: Panel.data[command] for command in _ANSWERED})
        super().on_before_init(**options)

    def setup_logging(self, colorize: bool | None = None) -> Any:
        receivers = super().setup_logging(colorize)
        quieten_celery()
        # At each loss of a connection, Celery warns that the default of this setting will change, even if it is set.
        # Ours is False: with True, Celery would end the process that scores, although its lease may still be renewed.
        warnings.filterwarnings("ignore", _ABOUT_CANCELLING, CPendingDeprecationWarning)
        return receivers

    def install_platform_tweaks(self, worker: Any) -> None:
        super().install_platform_tweaks(worker)
        install_worker_term_handler(worker, verbose=False)  # like Celery, but without "Warm shutdown (MainProcess)"

    def emit_banner(self) -> None:
        self.parent.log_what_is_served()

    def on_consumer_ready(self, consumer: Any) -> None:
        self.parent.watch_for_spot_notice()

    def _process_task(self, req: Any) -> None:
        """Pass a request to the child. If its fields cause an error, free the pool's slot: Celery would not."""
        req.time_limits = (None, None)  # ours have none, and odd ones would end Celery's loop later
        try:
            super()._process_task(req)
        except Exception:
            celery_state.task_ready(req)
            self._quick_release()
            raise

    def start(self) -> None:
        super().start()
        end_process(self.parent.finish(self.exitcode or 0))


class _Commands(dict[str, Callable[..., Any]]):
    """Remote control commands by name. An unknown one is answered with an error; Celery would log a traceback."""

    def __missing__(self, command: str) -> Callable[..., Any]:
        return lambda _state, **_arguments: {"error": f"Workers of shardsift do not know {command}"}


class ScorerConsumer(Consumer):  # type: ignore[misc]
    """Pauses if Redis refuses to read the queue, because a permission is missing or the queue's key has another type.

    Celery takes the refusal for a lost connection, and would reconnect at once.
    """

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        if is_refusal(exc):
            parent = self.controller.parent
            parent.may_take_shards(self.pool.info["processes"])  # because the event loop does not run now
            refused = "No message can be taken from the queue %s: %s"
            logger.warning(refused, parent.queue, as_ours(exc), extra=ABOUT_REDIS)
            deadline = time.monotonic() + _REFUSED_SECONDS
            while time.monotonic() < deadline and celery_state.should_stop is None:
                time.sleep(_STOP_CHECK_SECONDS)
        super().on_connection_error_after_connected(exc)


class TakeShardsWhenLoaded(bootsteps.StartStopStep):  # type: ignore[misc]
    """Fetches messages only while a child has its model loaded.

    Works like Celery's `worker_disable_prefetch`, which fetches messages only while a child is free.
    """

    requires = (Tasks,)

    def start(self, consumer: Any) -> None:
        parent, pool = consumer.controller.parent, consumer.pool
        qos = consumer.task_consumer.channel.qos
        is_free = qos.can_consume
        qos.can_consume = lambda: parent.may_take_shards(pool.info["processes"]) and is_free()


def _started_parent(app: Celery, hostname: str) -> Parent:
    try:
        settings = read_settings()
        ledger = Ledger.connect(settings, wait_seconds=START_SECONDS)
        models = resolve_models(settings.scorer, settings.models)
        return Parent(app, settings, ledger, models, hostname=hostname)
    except (UsageError, TransientError) as error:
        raise _ended(str(error), ExitCode.USAGE) from error
    except redis.RedisError as error:
        raise _ended(str(as_ours(error)), ExitCode.USAGE) from error
    except Exception as error:
        raise _ended(f"{type(error).__name__}: {error}", ExitCode.NO_MODEL) from error


def _ended(reason: str, code: int) -> SystemExit:
    report_end(" ".join(reason.split()))
    return SystemExit(code)


def log_line() -> str:
    """Return the format of log lines, with the worker's name, because a supervisor's workers share a log."""
    name = os.environ.get(WORKER_NAME, "").replace("%", "%%")
    return LINE.replace("%(levelname)s", f"{name} %(levelname)s") if name else LINE


def quieten_celery() -> None:
    """Limit Celery's log lines. Call it after Celery has set up logging, in the parent and in each child."""
    for name in ("celery.worker.strategy", "celery.app.trace"):  # because we log a line for each shard
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)  # it warns about each empty URL in `inspect conf`
    os.environ["_MP_FORK_LOGLEVEL_"] = str(logging.ERROR)  # Celery's log level for children until they set up logging
    for name in ("celery.app.trace", "celery.worker.request"):
        logging.getLogger(name).addFilter(_is_news)
    for name in ("kombu.pidbox", "celery.worker.pidbox"):  # any client may send wrong arguments
        logging.getLogger(name).addFilter(_without_traceback)


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for our own errors and for lost child processes, which are logged elsewhere."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ShardsiftError) and not _is_lost_worker(error)


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


def _is_lost_worker(error: BaseException | None) -> bool:
    return isinstance(error, WorkerLostError) or isinstance(getattr(error, "exc", None), WorkerLostError)
