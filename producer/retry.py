"""Queue the failed shards of a run again, each with the current content of its file."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.ledger.kinds import S
from fleet.shard import Shard
from fleet.storage.identity import identity_now

_LOOKS = 16  # at once


@dataclass(frozen=True, kw_only=True)
class Retried:
    """The number of shards queued again, and the names of those whose files have changed since they were enqueued."""

    queued: int
    changed: tuple[str, ...]


def look_at_file(shard: Shard) -> Shard:
    """The shard with its file's current identity. Raises ShardError, TransientError or UsageError."""
    identity, size_bytes = identity_now(shard.uri)
    return replace(shard, identity=identity, size_bytes=size_bytes)


def retry_run(
    ledger: Ledger[S], run_id: str, *, done_too: bool = False, look: Callable[[Shard], Shard] = look_at_file
) -> Retried:
    """Record the files' current identities and queue the shards. Raises UsageError for an unknown run.

    A file that is missing or cannot be read keeps its record; its shard will fail with the reason.
    """
    ledger.spec(run_id)
    failed = [failure.shard for failure in ledger.failures(run_id)]
    changed = list(_changed(ledger.shards(run_id, None if done_too else failed), look))
    ledger.update_shards(run_id, changed)
    queued = ledger.retry(run_id, done_too=done_too)
    ledger.update_shards(run_id, changed)  # includes shards that were done
    return Retried(queued=queued, changed=tuple(shard.name for shard in changed))


def _changed(shards: Iterable[Shard], look: Callable[[Shard], Shard]) -> Iterator[Shard]:
    def as_it_is_now(shard: Shard) -> Shard | None:
        """None if it has not changed."""
        try:
            now = look(shard)
        except (ShardError, TransientError, UsageError):
            return None
        return None if now.identity == shard.identity else replace(now, changed=True)

    with ThreadPoolExecutor(_LOOKS) as pool:
        yield from (shard for shard in pool.map(as_it_is_now, shards) if shard is not None)
