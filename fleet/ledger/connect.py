"""Connect to the fleet's Redis, with errors that say what to do."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis

from fleet.errors import UsageError
from fleet.ledger.base import PREFIX
from fleet.process.settings import Settings
from fleet.process.wording import first_of

OLDEST_REDIS = (6, 2)
_PAUSE_SECONDS = 0.5
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # OpenSSL's word, which redis-py passes on in a ConnectionError
logger = logging.getLogger(__name__)


def connect(settings: Settings, *, wait_seconds: float = 0.0) -> redis.Redis:
    """A client with a working connection. Raises UsageError if Redis is missing, refuses the connection or is too old.

    A server that does not answer, or still loads its data, is waited for. A wrong password or certificate is not.
    """
    if settings.ledger_url is None:
        raise UsageError(
            "No Redis is named. Set REDIS_URL, for example redis://:password@host:6379/0; "
            "or use `producer run`, which starts a Redis and workers on this machine."
        )
    try:
        client = redis.Redis.from_url(
            settings.ledger_url,
            decode_responses=True,
            socket_connect_timeout=10,
            socket_timeout=30,
            health_check_interval=15,
        )
    except ValueError:  # the URL is not shown: if it cannot be parsed, any part of it may be the password
        raise UsageError(
            "REDIS_URL is not a valid Redis URL. Write redis://:password@host:6379/0 and percent-encode special characters."
        ) from None
    address = address_of(settings.ledger_url)
    try:
        _wait_for_answer(client, address, wait_seconds)
    except redis.AuthenticationError as error:
        raise UsageError(
            f"Redis at {address} refuses the password ({error}). "
            "Check the user and the password in REDIS_URL, or REDIS_PASSWORD_FILE."
        ) from error
    except redis.exceptions.NoPermissionError as error:
        raise UsageError(
            f"Redis at {address} refuses the user in REDIS_URL ({error}). "
            "Name another user, or give it the rights of one in ops/redis/users.acl, which are for database 0."
        ) from error
    except redis.RedisError as error:
        raise UsageError(f"No Redis answers at {address} ({error}). Start it, or correct REDIS_URL.") from error
    return client


def refuse_eviction(info: Mapping[str, Any]) -> None:
    """Raises UsageError if a full server would delete keys of the ledger, which have no time to live. Takes what INFO says."""
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys") and info.get("maxmemory") != 0:
        raise UsageError(
            f"This Redis deletes any keys when it is full, parts of runs too (maxmemory-policy is {policy}). "
            "Set it: redis-cli CONFIG SET maxmemory-policy noeviction, and in the server's configuration."
        )


def _wait_for_answer(client: redis.Redis, address: str, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    has_told = False
    while True:
        try:
            client.ping()
            _check_version(client, address)
            return
        except redis.AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if time.monotonic() >= deadline or _UNTRUSTED in str(error):
                raise
            if not has_told:
                logger.warning("No Redis answers at %s (%s). Waiting for it", address, error)
                has_told = True
            time.sleep(_PAUSE_SECONDS)


def address_of(url: str) -> str:
    """The host and port, or the socket. Other parts of a URL, before the @ and in the query, may hold the password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def _check_version(client: redis.Redis, address: str) -> None:
    """Refuse an old server now. It would fail in the middle of a run, on a command that it does not know."""
    try:
        version = str(client.info("server")["redis_version"])
    except (redis.ResponseError, KeyError):  # a managed service that does not report its version
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise UsageError(
            f"Redis at {address} is version {version}. shardsift needs Redis 6.2 or later, or Valkey: upgrade it, "
            "or set REDIS_URL to another server."
        )


# What the Redis user in REDIS_URL may do. Asks the server without executing anything.
#
# Redis checks a user's rights to command, keys and channels when a transaction queues the command. Each command is therefore
# sent after MULTI, and the connection is closed instead of EXEC. `ACL DRYRUN` would need rights that no user of ours has.

_SHOWN = 3  # commands in a message
_LEDGER_KEY, _SCORE_QUEUE = f"{PREFIX}rights", "score.rights"
_OF_WORKERS = (
    *(f"EVAL script 1 {_LEDGER_KEY}", f"EVALSHA digest 1 {_LEDGER_KEY}", "SCRIPT LOAD script", "TIME"),
    *(
        f"{command} {_LEDGER_KEY}"
        for command in ("DEL", "EXISTS", "GET", "MGET", "SMEMBERS", "SCARD", "HGETALL", "HLEN", "ZCARD")
    ),
    *(f"{command} {_LEDGER_KEY} x" for command in ("SADD", "SREM", "SISMEMBER", "HGET", "HDEL", "HEXISTS")),
    *(f"{command} {_LEDGER_KEY} x" for command in ("SET", "HMGET", "HSTRLEN", "ZREM", "ZSCORE")),
    *(f"{command} {_LEDGER_KEY} 0 1" for command in ("HSET", "HSETNX", "HINCRBY", "ZADD", "ZRANGE", "ZRANGEBYSCORE")),
    *(f"LPUSH {_SCORE_QUEUE} 1", f"BRPOP {_SCORE_QUEUE} 1", f"LLEN {_SCORE_QUEUE}", f"LPUSH {_LEDGER_KEY} 1"),
    *("HSET unacked x 1", "HGET unacked x", "HDEL unacked x", "ZADD unacked_index 0 x", "ZREM unacked_index x"),
    *("SADD _kombu.binding.celeryev x", "SMEMBERS _kombu.binding.celery.pidbox"),
    *("PUBLISH /{db}.celeryev/x x", "PSUBSCRIBE /{db}.celery.pidbox"),
)
_OF_PRODUCERS = (
    *_OF_WORKERS,
    *(f"HKEYS {_LEDGER_KEY}", f"UNLINK {_LEDGER_KEY}", f"HRANDFIELD {_LEDGER_KEY} 1"),
    *(f"LRANGE {_SCORE_QUEUE} 0 -1", f"LREM {_SCORE_QUEUE} -1 x", f"BRPOP {_LEDGER_KEY} 1"),
    *("PUBLISH /{db}.reply.celery.pidbox x", "SUBSCRIBE /{db}.celeryev/x"),
)


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a process does on Redis: the commands it needs, with keys and channels like those that it uses."""

    name: str
    user: str  # in ops/redis/users.acl
    commands: tuple[str, ...]


WORKER = Role(name="a worker", user="shardsift-worker", commands=_OF_WORKERS)
PRODUCER = Role(name="a producer", user="shardsift", commands=_OF_PRODUCERS)


def check_rights(client: redis.Redis, role: Role) -> None:
    """Raises UsageError, before anything is read or written, if the user may not do what the role needs."""
    if refused := refused_commands(client, role):
        raise UsageError(
            f"The user {user_of(client)!r} of Redis may not run all commands that {role.name} needs: "
            f"{first_of(refused, _SHOWN)}. "
            f"Name a user in REDIS_URL that may, such as {role.user!r} of ops/redis/users.acl."
        )


def refused_commands(client: redis.Redis, role: Role) -> list[str]:
    """The commands of the role that the user may not run, or not on the keys and channels that the role uses."""
    database = client.connection_pool.connection_kwargs.get("db") or 0
    commands = [command.replace("{db}", str(database)).split() for command in ("MULTI", *role.commands)]
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))  # type: ignore[no-untyped-call]
        answers = [_is_permitted(connection) for _ in commands]
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]  # discards the transaction
        pool.release(connection)
    refused = (command[0] for command, is_permitted in zip(commands, answers, strict=True) if not is_permitted)
    return list(dict.fromkeys(refused))


def user_of(client: redis.Redis) -> str:
    """The user whose name is in REDIS_URL."""
    return client.connection_pool.connection_kwargs.get("username") or "default"


def _is_permitted(connection: redis.Connection) -> bool:
    """Read an answer. Errors of other kinds, such as that of a replica or a full server, say nothing about rights."""
    try:
        connection.read_response()
    except redis.exceptions.NoPermissionError:
        return False
    except redis.ResponseError:
        return True
    return True
