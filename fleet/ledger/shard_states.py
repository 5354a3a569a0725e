"""The state of every shard of a run, and the details of a few. Reads only; for pages that show shards one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import redis

from fleet.ledger.keys import Keys
from fleet.receipt import Receipt


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ShardStates:
    """The names of the shards that are not queued, at one moment."""

    running: frozenset[str]
    done: frozenset[str]
    failed: frozenset[str]

    def of(self, name: str) -> State:
        if name in self.done:
            return State.DONE
        if name in self.running:
            return State.RUNNING
        return State.FAILED if name in self.failed else State.QUEUED


@dataclass(frozen=True, kw_only=True)
class ShardDetails:
    """`error` and `traceback` are those of the last attempt that ended badly, and `reported_by` is its worker.

    The ledger forgets the attempts at a shard when it is done: then the receipt says who scored it.
    """

    name: str
    state: State
    attempts: int
    crashes: int
    errors: int
    worker: str  # that holds a running shard
    rows: int  # scored so far of a running shard
    error: str
    traceback: str
    reported_by: str
    receipt: Receipt | None  # of a done shard


def read_shard_names(client: redis.Redis, run_id: str) -> list[str]:
    """All shards of a run, sorted."""
    return sorted(map(str, client.hkeys(Keys(run_id).shards)))


def read_shard_states(client: redis.Redis, run_id: str) -> ShardStates:
    """Redis needs some milliseconds for 100,000 done shards."""
    keys = Keys(run_id)
    pipeline = client.pipeline()
    pipeline.zrange(keys.running, 0, -1)
    pipeline.hkeys(keys.receipts)
    pipeline.smembers(keys.failed)
    running, done, failed = pipeline.execute()
    return ShardStates(running=frozenset(running), done=frozenset(done), failed=frozenset(failed))


def read_shard_details(client: redis.Redis, run_id: str, names: Sequence[str]) -> Iterator[ShardDetails]:
    """The details of these shards, in the same order."""
    keys = Keys(run_id)
    pipeline = client.pipeline()
    for name in names:
        pipeline.zscore(keys.running, name)
        pipeline.sismember(keys.failed, name)
        pipeline.hget(keys.receipts, name)
        pipeline.hmget(keys.attempts(name), *_OF_ATTEMPTS)
    answers = pipeline.execute()
    for name, lease, failed, receipt, attempts in zip(names, *(answers[part::4] for part in range(4)), strict=True):
        numbers, texts = attempts[:4], attempts[4:]
        tried, crashes, errors, rows = (int(number or 0) for number in numbers)
        owner, error, traceback, reported_by = (text or "" for text in texts)
        is_running = lease is not None
        yield ShardDetails(
            name=name,
            state=_state(is_running=is_running, is_done=receipt is not None, is_failed=bool(failed)),
            attempts=tried,
            crashes=crashes,
            errors=errors,
            worker=owner if is_running else "",
            rows=rows if is_running else 0,
            error=error,
            traceback=traceback,
            reported_by=reported_by,
            receipt=Receipt.from_json(receipt) if receipt else None,
        )


_OF_ATTEMPTS = ("attempts", "crashes", "errors", "rows", "owner", "error", "traceback", "worker")


def _state(*, is_running: bool, is_done: bool, is_failed: bool) -> State:
    if is_done:
        return State.DONE
    if is_running:
        return State.RUNNING
    return State.FAILED if is_failed else State.QUEUED
