"""Connect to the fleet's Redis, with errors that say what to do."""

import logging
import os
import time

import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.redis_address import RedisAddress
from shardsift.fleet.process.redis_away import advice_on, as_ours, is_refusal
from shardsift.fleet.process.settings import Settings

OLDEST_REDIS = (6, 2)
START_SECONDS = 60.0  # time that a worker, finalizer or Flower waits at its start for a Redis that does not answer
_PAUSE_SECONDS = 0.5
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # from OpenSSL, in the text of redis-py's ConnectionError
logger = logging.getLogger(__name__)


def connect(settings: Settings, *, wait_seconds: float = 0.0) -> redis.Redis:
    """Return a client with a working connection.

    Waits up to `wait_seconds` for a server that does not answer or still loads its data. Raises UsageError if Redis is
    missing, refuses the connection, is too old, or would delete keys when it is full.
    """
    address = settings.redis
    if address is None:
        raise UsageError(
            "No Redis is named. Set REDIS_URL, for example redis://:password@host:6379/0; "
            "or use `producer run`, which starts a Redis and workers on this machine."
        )
    for file in address.tls_files:
        if not os.access(file, os.R_OK):
            raise UsageError(f"The file {file}, which REDIS_URL names, cannot be read here.")
    client = redis.Redis.from_url(
        address.url,
        decode_responses=True,
        socket_connect_timeout=10,
        socket_timeout=30,
        health_check_interval=15,
    )
    try:
        _wait_for_answer(client, address, wait_seconds)
    except redis.RedisError as error:
        if is_refusal(error):
            raise UsageError(str(as_ours(error, f"Redis at {address}"))) from error
        hint = " By rediss:// it must speak TLS." if address.tls else ""
        raise UsageError(f"No Redis answers at {address} ({error}). Start it, or correct REDIS_URL.{hint}") from error
    return client


def why_no_writes(client: redis.Redis) -> str:
    """Return why Redis refuses to write, and what to do.

    Empty if it accepts writes, or if INFO does not show the reason.
    """
    try:
        info = client.info()
    except redis.ResponseError:  # this user or a managed service may not call INFO
        return ""
    states = {
        "READONLY": info.get("role") == "slave" and bool(info.get("slave_read_only", 1)),
        "OOM": 0 < info.get("maxmemory", 0) <= info.get("used_memory", 0),
        "MISCONF": info.get("aof_last_write_status") == "err",
    }
    answer = next((code for code, holds in states.items() if holds), None)
    return f"Redis refuses to write ({answer}). {advice_on(redis.ResponseError(answer))}" if answer else ""


def _wait_for_answer(client: redis.Redis, address: RedisAddress, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    has_warned = False
    while True:
        try:
            client.ping()
            _check_server(client, address)
            return
        except redis.AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError) as error:
            if time.monotonic() >= deadline or _UNTRUSTED in str(error):
                raise
            if not has_warned:
                said = "Redis at %s is a replica (%s)" if is_refusal(error) else "No Redis answers at %s (%s)"
                logger.warning(f"{said}. Waiting for it", address, error)
                has_warned = True
            time.sleep(_PAUSE_SECONDS)


def _check_server(client: redis.Redis, address: RedisAddress) -> None:
    """Raise UsageError for a server that would fail in the middle of a run, or would delete keys of the ledger.

    Raises ReadOnlyError for a replica, so that the caller waits: a failover may soon make it a primary.
    """
    server = client.execute_command("HELLO")  # type: ignore[no-untyped-call]  # every user may send it
    if isinstance(server, list):
        server = dict(zip(server[::2], server[1::2], strict=True))
    mode = server.get("mode")
    if mode == "cluster":
        raise UsageError(
            f"Redis at {address} runs in cluster mode. shardsift needs all keys on one server: set REDIS_URL to a server with "
            "cluster-enabled no, or of a managed service to one without cluster mode."
        )
    if mode == "sentinel":
        raise UsageError(f"{address} is a Sentinel, which holds no data. Set REDIS_URL to the primary that it watches.")
    version = str(server.get("version", ""))
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise UsageError(
            f"Redis at {address} is version {version}. shardsift needs Redis 6.2 or later, or Valkey: upgrade it, "
            "or set REDIS_URL to another server."
        )
    if server.get("role") in ("slave", "replica"):
        raise redis.ReadOnlyError("its role is replica")
    _check_scripts(client)
    try:
        info = client.info("memory")
    except redis.ResponseError:  # this user or a managed service may not call INFO
        return
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys") and info.get("maxmemory") != 0:
        raise UsageError(
            f"This Redis deletes any keys when it is full, parts of runs too (maxmemory-policy is {policy}). "
            "Set it: redis-cli CONFIG SET maxmemory-policy noeviction, and in the server's configuration."
        )


def _check_scripts(client: redis.Redis) -> None:
    """Raise ResponseError if the server lacks EVALSHA. Ignores other errors, because other checks find them."""
    try:
        client.evalsha("0" * 40, 0)
    except redis.ResponseError as error:
        if "unknown command" in str(error).lower():
            raise
