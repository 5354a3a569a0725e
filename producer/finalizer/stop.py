"""Exit after a stop signal if Redis is away.

Celery's main thread sends heartbeats and replies to remote control, and repeats them until Redis answers. Meanwhile it
does not look whether a signal has arrived.
"""

import logging
import os
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_AWAY_SECONDS = 2.0
_ANSWER_SECONDS = 5.0  # of a Redis that accepts connections and is silent
_PAUSE_SECONDS = 0.25
logger = logging.getLogger(__name__)


def end_without_redis(url: str) -> None:
    """Start a thread that exits when Redis is away. While Redis answers, Celery finishes its work, such as a publication.

    An interrupted publication is repeated by another finalizer. May be called in a signal handler, and twice.
    """
    threading.Thread(target=_exit_when_away, args=(url,), name="end without Redis", daemon=True).start()


def _exit_when_away(url: str) -> None:
    client = redis.Redis.from_url(
        url,
        socket_connect_timeout=_ANSWER_SECONDS,
        socket_timeout=_ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    last_answer = time.monotonic()
    while time.monotonic() - last_answer < _AWAY_SECONDS:
        if _answers(client):
            last_answer = time.monotonic()
        time.sleep(_PAUSE_SECONDS)
    logger.warning("Exiting without a clean shutdown: Redis does not answer")
    os._exit(0)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except (redis.ConnectionError, redis.TimeoutError):
        return False
    except redis.RedisError:  # it refuses the command
        return True
