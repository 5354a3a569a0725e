"""Run the checks of `producer doctor` and `worker doctor`. Has the checks that both share: Redis and the Hub."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, NoReturn

import redis
import typer
from huggingface_hub import constants

from shardsift.fleet.errors import ExitCode, ShardsiftError, UsageError
from shardsift.fleet.ledger.base import PREFIX, refuse_other_version
from shardsift.fleet.ledger.connect import connect
from shardsift.fleet.process.command_line import print_json
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.redis_away import advice_on, is_refusal
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.storage.hub_access import check_hub_answers, hub_token

REDIS_MEND = (
    "Is the address in REDIS_URL right, and does a firewall let this machine through? "
    "See ops/README.md, Redis across machines."
)
_NETWORK_MEND = "Check the network and HF_ENDPOINT; inputs, models and outputs may also be folders of this machine."
_TOKEN_MEND = "Make a token with write access at https://huggingface.co/settings/tokens, and set HF_TOKEN."


class Result(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but slower or less safely, or may fail later
    WRONG = "wrong"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one check. `--json` prints its fields.

    `mend` tells the user what to do. It is empty if nothing is wrong, or if `says` already tells it.
    """

    check: str = ""
    result: Result
    says: str
    mend: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A named check. `run` performs it and returns the verdict.

    If `run` raises, the result is `wrong`, with the error's message and `mend`. The check is skipped if one of the
    checks in `needs` was wrong or skipped.
    """

    name: str
    run: Callable[[], Verdict]
    mend: str = ""  # empty if the error itself says what to do
    needs: tuple[str, ...] = ()


def ok(says: str) -> Verdict:
    return Verdict(result=Result.OK, says=says)


def warning(says: str, mend: str) -> Verdict:
    return Verdict(result=Result.WARNING, says=says, mend=mend)


def wrong(says: str, mend: str) -> Verdict:
    return Verdict(result=Result.WRONG, says=says, mend=mend)


def run_checks(checks: Iterable[Check], *, as_json: bool) -> NoReturn:
    """Run the checks and print their results. Exits with 0, or with 1 if a check is wrong.

    Prints each result as soon as it is known. If `as_json`, prints all results at the end.
    """
    found = []
    for verdict in diagnose(checks):
        found.append(verdict)
        if not as_json:
            typer.echo(f"{verdict.result:<8} {verdict.check:<12} {verdict.says} {verdict.mend}".rstrip())
            sys.stdout.flush()
    if as_json:
        print_json([asdict(verdict) for verdict in found])
    raise typer.Exit(ExitCode.FAILED if any(verdict.result is Result.WRONG for verdict in found) else ExitCode.DONE)


def diagnose(checks: Iterable[Check]) -> Iterator[Verdict]:
    """Run the checks in order. Yields each verdict, with secrets removed, before the next check runs.

    Yields nothing for a check that is skipped.
    """
    passed: set[str] = set()
    for check in checks:
        if passed.issuperset(check.needs):
            verdict = _verdict_of(check)
            if verdict.result is not Result.WRONG:
                passed.add(check.name)
            yield replace(verdict, check=check.name, says=redacted(verdict.says), mend=redacted(verdict.mend))


def _verdict_of(check: Check) -> Verdict:
    try:
        return check.run()
    except Exception as error:  # a check that fails is a finding; the others still run
        kind = "" if isinstance(error, ShardsiftError) else f"{type(error).__name__}: "
        return wrong(f"{kind}{' '.join(str(error).split())}", check.mend)


def redis_checks(settings: Settings, commands: Iterable[str], *, otherwise: Callable[[], Verdict]) -> list[Check]:
    """Return two checks: Redis answers, and the user in REDIS_URL may run `commands`.

    Without REDIS_URL, return a single check that runs `otherwise`.
    """
    if settings.redis_url is None:
        return [Check(name="redis", run=otherwise)]
    return [redis_check(settings), rights_check(settings, commands)]


def redis_check(settings: Settings) -> Check:
    """Return a check: Redis answers, and keeps a run's keys when its memory is full and when it restarts."""
    return Check(name="redis", run=partial(_redis, settings), mend=REDIS_MEND)


def _redis(settings: Settings) -> Verdict:
    try:
        client = connect(settings)
        with suppress(redis.ResponseError):  # rights_check reports the rights that this user lacks
            refuse_other_version(client)
    except UsageError as error:
        return wrong(str(error), "" if error.__cause__ is None or is_refusal(error.__cause__) else REDIS_MEND)
    info: dict[str, Any] = {}
    with suppress(redis.ResponseError):  # this user, or a managed service, does not allow it
        info = client.info()
    server = f"Redis {info.get('redis_version', 'of unknown version')} at {settings.redis} answers"
    if not {"maxmemory_policy", "aof_enabled"} <= info.keys():
        return warning(
            f"{server}. Its INFO does not show its settings to this user.",
            "Check yourself that maxmemory-policy is noeviction, and that appendonly is yes.",
        )
    if not info["aof_enabled"]:
        return warning(
            f"{server}. AOF is off: the runs are lost when Redis restarts.",
            "Set appendonly yes. Without it, repeat `producer enqueue` after a restart: it takes over what is stored.",
        )
    return ok(f"{server}; maxmemory-policy is {info['maxmemory_policy']}; AOF is on.")


# Commands that a worker sends, directly or in scripts, with keys like those of a fleet. A producer sends more.
OF_WORKERS = (
    *("TIME", "EVALSHA script 1 {key}", "SCRIPT LOAD script", "SET {key} x", "PEXPIRE {key} 1", "MGET {key}"),
    *("HSET {key} x x", "HSETNX {key} x x", "HINCRBY {key} x 1", "HGETALL {key}", "HMGET {key} x", "HDEL {key} x"),
    *("ZADD {key} 1 x", "ZREM {key} x", "ZRANGEBYSCORE {key} 0 1", "SADD {key} x", "SISMEMBER {key} x"),
    *("LPUSH {queue} x", "BRPOP {queue} 1", "LLEN {queue}", "HDEL unacked x", "SMEMBERS _kombu.binding.celeryev"),
    *("PUBLISH /{database}.celeryev/x x", "PSUBSCRIBE /{database}.celery.pidbox", "DEL {key}"),
)
OF_PRODUCERS = (*OF_WORKERS, "LRANGE {queue} 0 -1", "HKEYS {key}", "ZREVRANGE {key} 0 -1", "UNLINK {key}")


def rights_check(settings: Settings, commands: Iterable[str]) -> Check:
    """Return a check: Redis accepts these commands.

    Redis refuses them if it is a replica, if its memory is full, or if the user lacks rights.
    """
    return Check(name="redis rights", run=partial(_rights, settings, commands), mend=REDIS_MEND, needs=("redis",))


def _rights(settings: Settings, commands: Iterable[str]) -> Verdict:
    """Check the commands without running them.

    Queues them in a transaction, because Redis refuses a forbidden command as soon as it is queued. The transaction
    ends with a GET that lacks its key, so Redis discards all of it.
    """
    client = connect(settings)
    database = client.connection_pool.connection_kwargs.get("db") or 0
    with client.pipeline() as transaction:
        for command in (*commands, "GET"):
            words = command.format(database=database, key=f"{PREFIX}rights", queue="score.rights").split()
            transaction.execute_command(*words)  # type: ignore[no-untyped-call]
        try:
            transaction.execute()
        except redis.ResponseError as error:
            if mend := advice_on(error):
                return wrong(f"Redis refuses what is needed here: {error}.", mend)
    return ok("Redis takes all commands that are needed here from the user in REDIS_URL.")


def hub_check() -> Check:
    return Check(name="hub", run=_hub, mend=_TOKEN_MEND)


def _hub() -> Verdict:
    if constants.HF_HUB_OFFLINE:
        return warning("HF_HUB_OFFLINE is set: the Hub is not asked.", "Unset it, if that is not intended.")
    try:
        check_hub_answers()
    except ShardsiftError as error:
        return warning(str(error), _NETWORK_MEND)
    token = hub_token()
    if token is None:
        return warning("There is no Hugging Face token: only public data and models can be read.", _TOKEN_MEND)
    if token.role == "read":
        return warning(f"The token is of {token.user}. It may only read.", _TOKEN_MEND)
    return ok(f"The token is of {token.user}, role {token.role}.")
