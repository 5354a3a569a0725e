"""kombu's transport for Redis, which refuses what is no message instead of ending its process.

A client that may write to a queue can put anything there. kombu decodes an element while it reads it, and Celery looks at it
before a task runs; neither expects the errors of every content. Each refusal is the signal `task_rejected` of Celery.
"""

import logging
from collections.abc import Callable
from typing import Any

import redis
from celery import signals
from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.transport.redis import Channel, Transport
from kombu.transport.virtual import Empty, Message

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
        signals.task_rejected.send(sender=self, message=None, exc=error)


class _Transport(Transport):
    Channel = _Channel


class _Connection(Connection):
    def get_transport_cls(self) -> type[Transport]:
        return _Transport


class RefusingAMQP(AMQP):  # type: ignore[misc]
    """For `Celery(amqp=...)`. The broker's URL cannot name a class of ours."""

    Connection = _Connection


def _is_of_content(error: Exception) -> bool:
    """Whether an element caused the error, and not Redis. A DataError says that a value cannot be sent to Redis."""
    return isinstance(error, redis.DataError) or not isinstance(error, _NOT_OF_CONTENT)
