"""Find out what the Redis user in REDIS_URL may do, without executing anything.

Redis checks a user's rights to command, keys and channels when a transaction queues the command. Each command is therefore
sent after MULTI, and the connection is closed instead of EXEC. `ACL DRYRUN` would need rights that no user of ours has.
"""

from dataclasses import dataclass

import redis

from fleet.errors import UsageError
from fleet.ledger.base import PREFIX
from fleet.process.wording import first_of

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
