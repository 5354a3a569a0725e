"""The ledger: the record of every shard's state in Redis, and the only truth about a run.

States go `queued → running → done | failed`; each move is one Lua script (`fleet/lua/`) on Redis' own clock, so that
it happens whole or not at all and no worker's clock matters. A claim lasts for a lease and carries a token; a
worker that comes back after its lease ran out finds the token stale. Knows no Celery: `fleet/dispatch.py` sends messages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
from pydantic import TypeAdapter

from fleet.errors import LeaseLost, UsageError
from fleet.receipt import Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec

_PREFIX = "shardsift:"
_SHARD = TypeAdapter(Shard)
_T = TypeVar("_T")
_BATCH = 1000  # shards in one call to Redis


class ShardState(StrEnum):
    QUEUED = "queued"  # nobody works on it
    RUNNING = "running"  # a worker holds its lease
    DONE = "done"  # its receipt is recorded
    FAILED = "failed"  # no attempt left, or none would help; `producer retry` queues it again


class Refusal(StrEnum):
    """Why a claim was not granted; none of them is an error."""

    UNKNOWN = "unknown"  # no such run or shard: the message outlived its run
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"  # another worker holds it
    WAITING = "waiting"  # its back-off is not over


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker's time-limited right to a shard; `token` fences late writers."""

    run_id: str
    shard: Shard
    spec: RunSpec
    token: int
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Shards by state and rows by fate; `rows_running` are those scored in shards not yet done."""

    shards: int
    queued: int
    running: int
    done: int
    failed: int
    rows_in: int
    rows_kept: int
    rows_dropped: int
    rows_errored: int
    rows_running: int
    seconds: float  # from the first claim to the last completion, or to now

    @property
    def open(self) -> int:
        return self.queued + self.running

    @property
    def rows_scored(self) -> int:
        return self.rows_in + self.rows_running


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed shard, with the last error and the worker that met it."""

    shard: str
    error: str
    traceback: str
    worker: str
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Where a run was published, and which commit it was (empty for folders)."""

    uri: str
    commit: str
    shards: int


_PUBLICATION = TypeAdapter(Publication)


class Ledger:
    """All reads and writes of a fleet's runs. Cheap to make; safe to share between threads."""

    def __init__(self, client: redis.Redis, *, lease_seconds: float = 60.0, max_attempts: int = 3) -> None:
        self.redis = client
        self.lease_seconds = lease_seconds
        self._lease_ms = int(lease_seconds * 1000)
        self._max_attempts = max_attempts
        self._scripts = {name: client.register_script(_lua(name)) for name in _SCRIPTS}

    @classmethod
    def connect(cls, settings: Settings) -> "Ledger":
        """The ledger of the fleet's Redis. Raises UsageError where that is missing or refuses us."""
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
        return cls(client, lease_seconds=settings.lease_seconds, max_attempts=settings.max_attempts)

    # --- runs -------------------------------------------------------------------------------------------------------

    def create_run(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        """Write a run and the shards it does not have yet; returns how many those were. May run twice; lifts a cancellation."""
        run = _Keys(spec.run_id)
        self.redis.hset(run.run, mapping={"spec": spec.to_json(), "created": now})
        self.redis.hdel(run.run, "cancelled")
        added = 0
        for batch in _batches(shards):
            fields = [part for shard in batch for part in (shard.name, _SHARD.dump_json(shard))]
            added += self._run_script("add_shards", [run.run, run.waiting], [run.shard(""), *fields])
        self.redis.zadd(_PREFIX + "runs", {spec.run_id: now}, nx=True)
        if added:
            self.redis.hdel(run.run, "published")
        return added

    def run_ids(self) -> list[str]:
        """Newest first."""
        return self._ordered(_PREFIX + "runs")[::-1]

    def spec(self, run_id: str) -> RunSpec:
        """Raises UsageError for a run that the ledger does not have."""
        spec = self.redis.hget(_Keys(run_id).run, "spec")
        if spec is None:
            known = ", ".join(self.run_ids()[:5]) or "none"
            raise UsageError(f"The ledger has no run {run_id!r}. Newest runs: {known}.")
        return RunSpec.from_json(spec)

    def counts(self, run_id: str) -> Counts:
        keys = _Keys(run_id)
        pipeline = self.redis.pipeline()
        for key in (keys.waiting, keys.sent, keys.running):
            pipeline.zcard(key)
        for key in (keys.done, keys.failed):
            pipeline.scard(key)
        pipeline.hgetall(keys.run)
        pipeline.zrange(keys.running, 0, -1)
        pipeline.time()
        waiting, sent, running, done, failed, run, names, (now, _) = pipeline.execute()
        return Counts(
            shards=int(run.get("shards", 0)),
            queued=waiting + sent,
            running=running,
            done=done,
            failed=failed,
            rows_running=sum(int(rows or 0) for rows in self._shard_fields(keys, names, "rows")),
            seconds=_run_seconds(run, open_shards=waiting + sent + running, now=now),
            **{field: int(run.get(field, 0)) for field in ("rows_in", "rows_kept", "rows_dropped", "rows_errored")},
        )

    def cancel(self, run_id: str) -> None:
        """Workers stop at their next batch; nothing is forgotten, and `retry` or `create_run` takes it up again."""
        self.redis.hset(_Keys(run_id).run, "cancelled", 1)

    def is_cancelled(self, run_id: str) -> bool:
        return bool(self.redis.hexists(_Keys(run_id).run, "cancelled"))

    def retry(self, run_id: str, *, done_too: bool = False) -> int:
        """Queue the failed shards again with fresh attempts, and lift a cancellation; returns how many.

        With `done_too` every finished shard is scored again: for outputs that were lost before they were published.
        """
        keys = _Keys(run_id)
        return int(
            self._run_script("retry", [keys.run, keys.waiting, keys.failed, keys.done], [keys.shard(""), int(done_too)])
        )

    def forget_messages(self, run_id: str) -> None:
        """Have every open shard sent anew, leased or not; for whoever knows that its workers and messages are gone."""
        keys = _Keys(run_id)
        for shard in self._ordered(keys.running):
            self.redis.zadd(keys.running, {shard: 0}, xx=True)
        for shard in self._ordered(keys.sent):
            self.redis.zadd(keys.waiting, {shard: 0})
            self.redis.zrem(keys.sent, shard)

    # --- one shard --------------------------------------------------------------------------------------------------

    def claim(self, run_id: str, shard_name: str, owner: str) -> Claim | Refusal:
        """Take a shard for one lease; counts an attempt. Two workers never hold the same shard with valid tokens."""
        keys = _Keys(run_id)
        answer = self._run_script(
            "claim",
            [keys.run, keys.waiting, keys.sent, keys.running, keys.failed, keys.shard(shard_name)],
            [shard_name, owner, self._lease_ms, self._max_attempts],
        )
        if answer[0] != "claimed":
            return Refusal(answer[0])
        _, token, attempt, shard, spec = answer
        return Claim(
            run_id=run_id,
            shard=_SHARD.validate_json(shard),
            spec=RunSpec.from_json(spec),
            token=int(token),
            attempt=int(attempt),
        )

    def renew(self, claim: Claim, *, rows: int) -> None:
        """Extend the lease and note the rows scored so far. Raises LeaseLost when the shard is no longer ours."""
        keys = _Keys(claim.run_id)
        answer = self._run_script(
            "renew",
            [keys.run, keys.running, keys.shard(claim.shard.name)],
            [claim.shard.name, claim.token, self._lease_ms, rows],
        )
        if answer != "renewed":
            reason = "the run was cancelled" if answer == "cancelled" else "another attempt took it over"
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} is not ours any more: {reason}.")

    def complete(self, claim: Claim, receipt: Receipt) -> int:
        """Record a shard as done; returns the number of shards still open. Raises LeaseLost for a stale token."""
        keys = _Keys(claim.run_id)
        recorded, still_open = self._run_script(
            "complete",
            [keys.run, keys.waiting, keys.sent, keys.running, keys.done, keys.shard(claim.shard.name)],
            [
                claim.shard.name,
                claim.token,
                receipt.to_json(),
                receipt.rows_in,
                receipt.rows_kept,
                receipt.rows_dropped,
                receipt.rows_errored,
            ],
        )
        if not recorded:
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} was finished by another attempt.")
        return int(still_open)

    def release(self, claim: Claim) -> None:
        """Give a shard back untouched: a stop, not a failure; the attempt is not counted."""
        self._give_back(claim, delay_seconds=0, max_attempts=self._max_attempts, counted=False, error="", traceback="")

    def retry_later(self, claim: Claim, error: str, traceback: str) -> int:
        """Give a shard back after a transient error, to wait 5 s · 4^(attempt-1); failed when no attempt is left.

        Returns the number of shards still open.
        """
        delay = 5 * 4 ** (claim.attempt - 1)
        return self._give_back(
            claim, delay_seconds=delay, max_attempts=self._max_attempts, counted=True, error=error, traceback=traceback
        )

    def fail(self, claim: Claim, error: str, traceback: str) -> int:
        """Record a shard that no attempt can save; returns the number of shards still open."""
        return self._give_back(claim, delay_seconds=0, max_attempts=0, counted=True, error=error, traceback=traceback)

    def _give_back(
        self, claim: Claim, *, delay_seconds: float, max_attempts: int, counted: bool, error: str, traceback: str
    ) -> int:
        keys = _Keys(claim.run_id)
        _, still_open = self._run_script(
            "release",
            [keys.run, keys.waiting, keys.sent, keys.running, keys.failed, keys.shard(claim.shard.name)],
            [claim.shard.name, claim.token, int(delay_seconds * 1000), max_attempts, int(counted), error, traceback],
        )
        return int(still_open)

    def take_due(self, run_id: str, *, queue_is_empty: bool, resend_seconds: float) -> list[str]:
        """The shards to send messages for now, at most a thousand; they count as sent from here on.

        A message lost after this is sent anew once the queue is empty and `resend_seconds` have passed.
        """
        keys = _Keys(run_id)
        resend_ms = int(resend_seconds * 1000) if queue_is_empty else -1
        return list(
            self._run_script(
                "take_due", [keys.run, keys.waiting, keys.sent, keys.running], [resend_ms, _BATCH, keys.shard("")]
            )
        )

    # --- what came of it --------------------------------------------------------------------------------------------

    def receipts(self, run_id: str) -> Iterator[Receipt]:
        """The receipts of all done shards, in the order of their names."""
        keys = _Keys(run_id)
        for batch in _batches(self._members(keys.done)):
            for receipt in self._shard_fields(keys, batch, "receipt"):
                yield Receipt.from_json(receipt)

    def failures(self, run_id: str) -> list[Failure]:
        keys = _Keys(run_id)
        names = self._members(keys.failed)
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hmget(keys.shard(name), "error", "traceback", "owner", "attempts")
        return [
            Failure(
                shard=name, error=error or "", traceback=traceback or "", worker=owner or "", attempts=int(attempts)
            )
            for name, (error, traceback, owner, attempts) in zip(names, pipeline.execute(), strict=True)
        ]

    def publication(self, run_id: str) -> Publication | None:
        published = self.redis.hget(_Keys(run_id).run, "published")
        return _PUBLICATION.validate_json(published) if published else None

    def record_publication(self, run_id: str, publication: Publication) -> None:
        self.redis.hset(_Keys(run_id).run, "published", _PUBLICATION.dump_json(publication))
        self.redis.hdel(_Keys(run_id).run, "publish_error")

    def publish_error(self, run_id: str) -> str | None:
        """Why the last try to publish did not land; the finalizer tries again."""
        error = self.redis.hget(_Keys(run_id).run, "publish_error")
        return None if error is None else str(error)

    def record_publish_error(self, run_id: str, error: str) -> None:
        self.redis.hset(_Keys(run_id).run, "publish_error", error)

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _run_script(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=arguments)

    def _ordered(self, key: str) -> list[str]:
        return [str(name) for name in self.redis.zrange(key, 0, -1)]

    def _members(self, key: str) -> list[str]:
        return sorted(str(name) for name in self.redis.smembers(key))

    def _shard_fields(self, keys: "_Keys", names: Iterable[str], field: str) -> list[Any]:
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hget(keys.shard(name), field)
        return list(pipeline.execute())


class _Keys:
    """The Redis keys of one run; docs/architecture.md tells what each holds."""

    def __init__(self, run_id: str) -> None:
        self.run = f"{_PREFIX}run:{run_id}"
        self.waiting = f"{self.run}:waiting"
        self.sent = f"{self.run}:sent"
        self.running = f"{self.run}:running"
        self.done = f"{self.run}:done"
        self.failed = f"{self.run}:failed"

    def shard(self, name: str) -> str:
        return f"{self.run}:shard:{name}"


_SCRIPTS = ("add_shards", "claim", "renew", "complete", "release", "take_due", "retry")


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _lua(name: str) -> str:
    return resources.files("fleet").joinpath("lua", f"{name}.lua").read_text()


def _run_seconds(run: dict[str, str], *, open_shards: int, now: int) -> float:
    if "started_ms" not in run:
        return 0.0
    end_ms = now * 1000 if open_shards else int(run.get("finished_ms", run["started_ms"]))
    return max(0.0, (end_ms - int(run["started_ms"])) / 1000)


def _address(url: str) -> str:
    """Host and port, or the socket: what of a URL may be shown. A password can stand before the @ and in the query."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
