"""One Celery configuration for every process of the fleet: workers, finalizers, producers and Flower.

Celery carries hints ("try this shard") and feeds Flower. It stores no results and guarantees no delivery: a message
popped by a worker that dies at that moment is lost. The sweep of the ledger then sends the shard again.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from celery import Celery, signals
from celery.app.amqp import AMQP
from celery.events import EventDispatcher
from celery.loaders.app import AppLoader
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel, Transport
from kombu.transport.virtual import Empty, Message

from shardsift.fleet.process.logs import LINE, FleetFormatter
from shardsift.fleet.process.redact import all_redacted
from shardsift.fleet.process.redis_away import OnceAMinute
from shardsift.fleet.process.settings import Settings

STARTED, NEW = 0, 1  # Celery's priorities of a message: shards that were started before go first
_VISIBILITY_SECONDS = 7 * 86_400  # longer than any shard takes; a message that is redelivered later is refused
_CONFIGURATION: dict[str, Any] = {
    "broker_transport_options": {
        "visibility_timeout": _VISIBILITY_SECONDS,
        "priority_steps": [STARTED, NEW],
        "socket_timeout": 10,  # on a dead network, each connection waits this long, one after another
        "socket_connect_timeout": 10,
        "socket_keepalive": True,
        "health_check_interval": 15,
    },
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,  # survive a Redis that is full, or a replica during a failover
    # JSON only: a message can name a task and its arguments, but not carry code.
    "accept_content": ["json"],
    "task_ignore_result": True,  # the ledger holds results
    # A message stays with the broker until its task ends. If a child dies, the ledger decides whether the shard is
    # sent again, because the ledger counts crashes. Celery would send it again without limit.
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "task_acks_on_failure": True,
    # Take one message at a time, limited by running tasks. A limit on unacknowledged messages would block a worker
    # whose acknowledgement was lost with its connection.
    "worker_prefetch_multiplier": 0,
    "worker_disable_prefetch": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # a running shard outlives a restart of Redis
    # What Flower shows.
    "worker_send_task_events": True,
    "task_send_sent_event": True,
    "task_track_started": True,
    "event_queue_ttl": 30,
    "control_queue_expires": 300,
    "worker_log_format": LINE,
    "worker_task_log_format": LINE,
}


class _App(Celery):  # type: ignore[misc]  # Celery is untyped
    """A Celery app that ignores CELERY_BROKER_URL, which in Celery takes precedence over settings."""

    backend_cls = "disabled"  # instead of CELERY_RESULT_BACKEND

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_read(url or self.conf.get("broker_url"), **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_write(url or self.conf.get("broker_url"), **options)


class InstalledModules(AppLoader):  # type: ignore[misc]
    """A loader that imports tasks from installed modules only.

    Celery's own loader also looks in the current folder, and would import any worker.py there.
    """

    def read_configuration(self, env: str = "") -> dict[str, Any]:
        return {}  # instead of the module in CELERY_CONFIG_MODULE

    def import_from_cwd(self, module: str, imp: Any = None, package: str | None = None) -> Any:
        return self.import_module(module, package=package)


def make_app(name: str, settings: Settings, *, is_current: bool = True, **overrides: Any) -> Celery:
    """Create a Celery app on the fleet's Redis. `overrides` are Celery settings for one kind of process.

    Without a Redis URL the app has no broker, but it can be imported and can print its help. Pass `is_current=False` in
    a user's own process, because another app may be Celery's current app there.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the Hub client logs a line for every request
    address = settings.redis
    app = _App(
        name,
        broker=address and address.broker_url,
        loader=InstalledModules,
        amqp=RefusingAMQP,
        fixups=(),  # none, because Celery's would read Django's settings
        set_as_current=is_current,
    )
    app.events.dispatcher_cls = _RedactingDispatcher
    for is_set_up in (signals.after_setup_logger, signals.after_setup_task_logger):
        is_set_up.connect(_set_log_format)
    app.conf.update(_CONFIGURATION | {"broker_use_ssl": address and address.tls} | overrides)
    return app


class _RedactingDispatcher(EventDispatcher):  # type: ignore[misc]
    """An event dispatcher that removes secrets.

    Flower shows and stores events, and every client of the broker can read them.
    """

    def send(self, type: str, *arguments: Any, **fields: Any) -> Any:
        return super().send(type, *arguments, **all_redacted(fields))

    def publish(self, type: str, fields: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        return super().publish(type, all_redacted(fields), *arguments, **options)


def _set_log_format(logger: logging.Logger, **_: Any) -> None:
    for handler in logger.handlers:
        if handler.formatter and not isinstance(handler.formatter, FleetFormatter):
            handler.setFormatter(FleetFormatter(handler.formatter))
            handler.addFilter(OnceAMinute())


@contextmanager
def errors_of_redis() -> Iterator[None]:
    """Convert kombu's errors in a block to the redis-py errors that caused them."""
    try:
        yield
    except OperationalError as error:
        cause = error.__cause__
        raise (cause if isinstance(cause, redis.RedisError) else redis.ConnectionError(str(error))) from None


# Read kombu's queues in Redis, because Celery has no calls for it. Uses the ledger's client: broker and ledger are
# on the same server.

_PRIORITY_SEPARATOR = "\x06\x16"  # kombu's own


def queue_lists(queue: str) -> list[str]:
    """Return the names of the Redis lists that hold a queue's messages, in the order in which workers empty them.

    The first list holds the messages of shards that were started before.
    """
    return [queue, f"{queue}{_PRIORITY_SEPARATOR}{NEW}"]


def queue_length(client: redis.Redis, queue: str) -> int:
    return sum(int(client.llen(name)) for name in queue_lists(queue))


def shards_in_queue(client: redis.Redis, queue: str, run_id: str) -> Iterator[str]:
    for name in queue_lists(queue):
        for message in client.execute_command("LRANGE", name, 0, -1, NEVER_DECODE=True):  # type: ignore[no-untyped-call]
            task_id = _task_id(message)
            if task_id.startswith(f"{run_id}:"):
                yield task_id.removeprefix(f"{run_id}:").rpartition(":")[0]


def drop_messages(client: redis.Redis, queue: str) -> None:
    client.delete(*queue_lists(queue))


def _task_id(message: bytes) -> str:
    try:
        return str(json.loads(message)["headers"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""


# kombu's transport for Redis, changed to refuse elements of a queue that are not messages.
#
# A client with write access to a queue can put anything there. kombu decodes an element while it reads it, and Celery
# inspects it before a task runs. Errors there would end the process.

_NOT_OF_CONTENT = (Empty, redis.RedisError, OperationalError, OSError)
logger = logging.getLogger(__name__)


class _Channel(Channel):
    def _brpop_read(self, **options: Any) -> Any:
        return self._refusing(lambda: super(_Channel, self)._brpop_read(**options))  # type: ignore[no-untyped-call]

    def _receive_one(self, c: Any) -> Any:
        return self._refusing(lambda: super(_Channel, self)._receive_one(c))  # type: ignore[no-untyped-call]

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Message], Any], *more: Any, **options: Any
    ) -> Any:
        def guarded(message: Message) -> Any:
            try:
                return callback(message)
            except Exception as error:
                if not _is_of_content(error):
                    raise
                if not (no_ack or message.acknowledged):
                    message.reject()  # otherwise it would be delivered again
                self._refuse(error)

        return super().basic_consume(queue, no_ack, guarded, *more, **options)  # type: ignore[no-untyped-call]

    def _refusing(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            if not _is_of_content(error):
                raise
            self._refuse(error)
            raise Empty from error

    def _refuse(self, error: Exception) -> None:
        logger.warning(
            "Refused an element of a queue that is no message: %s: %s", type(error).__name__, str(error)[:200]
        )


class _Transport(Transport):
    Channel = _Channel


class _Connection(Connection):
    def get_transport_cls(self) -> type[Transport]:
        return _Transport


class RefusingAMQP(AMQP):  # type: ignore[misc]
    """An AMQP class for `Celery(amqp=...)`. Its transport refuses elements of a queue that are not messages.

    It is set this way because a broker URL cannot name this transport.
    """

    Connection = _Connection


def _is_of_content(error: Exception) -> bool:
    """Return whether the content of a queue's element caused the error, rather than Redis or the network.

    `DataError` counts although it is a RedisError. It means that a value of the element cannot be sent to Redis.
    """
    return isinstance(error, redis.DataError) or not isinstance(error, _NOT_OF_CONTENT)
