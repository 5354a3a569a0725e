"""The way to the fleet's Redis, with errors that say what to do."""

from urllib.parse import urlsplit

import redis

from fleet.errors import UsageError
from fleet.settings import Settings


def connect(settings: Settings) -> redis.Redis:
    """A client that answers. Raises UsageError where Redis is missing or refuses us."""
    if settings.ledger_url is None:
        raise UsageError("No Redis is named. Set REDIS_URL, for example redis://:password@host:6379/0.")
    try:
        client = redis.Redis.from_url(
            settings.ledger_url,
            decode_responses=True,
            socket_connect_timeout=10,
            socket_timeout=30,
            health_check_interval=15,
        )
    except ValueError:  # not shown: of a URL that cannot be split, any part may be the password
        raise UsageError(
            "REDIS_URL is no URL of a Redis. Write redis://:password@host:6379/0, other signs of the password as %XX."
        ) from None
    address = _address(settings.ledger_url)
    try:
        client.ping()
    except redis.AuthenticationError as error:
        raise UsageError(f"Redis at {address} refuses the password ({error}). Check REDIS_URL.") from error
    except redis.RedisError as error:
        raise UsageError(f"No Redis answers at {address} ({error}). Start it, or set REDIS_URL.") from error
    return client


def _address(url: str) -> str:
    """Host and port, or the socket: what of a URL may be shown. A password can stand before the @ and in the query."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
