"""Queue the failed shards of a run again, each with its file as it is now."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.shard import Shard
from fleet.storage.identity import identity_now

_LOOKS = 16  # at once


@dataclass(frozen=True, kw_only=True)
class Retried:
    """How many shards are queued again, and the names of those whose file is not the one that was enqueued."""

    queued: int
    changed: tuple[str, ...]


def retry_run(ledger: Ledger, run_id: str, *, done_too: bool = False) -> Retried:
    """Look at the files again, record what they are now, and queue the shards. Raises UsageError for an unknown run.

    A file that is not there, or cannot be looked at now, keeps its record: its shard will say so.
    """
    ledger.spec(run_id)
    failed = [failure.shard for failure in ledger.failures(run_id)]
    changed = list(_changed(ledger.shards(run_id, None if done_too else failed)))
    ledger.update_shards(run_id, changed)
    queued = ledger.retry(run_id, done_too=done_too)
    ledger.update_shards(run_id, changed)  # those that were done until now
    return Retried(queued=queued, changed=tuple(shard.name for shard in changed))


def _changed(shards: Iterable[Shard]) -> Iterator[Shard]:
    with ThreadPoolExecutor(_LOOKS) as pool:
        for shard in pool.map(_as_it_is_now, shards):
            if shard is not None:
                yield shard


def _as_it_is_now(shard: Shard) -> Shard | None:
    """None if it did not change."""
    try:
        identity, size_bytes = identity_now(shard.uri)
    except (ShardError, TransientError, UsageError):
        return None
    if identity == shard.identity:
        return None
    return replace(shard, identity=identity, size_bytes=size_bytes, changed=True)
