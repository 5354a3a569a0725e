"""Queue the failed shards of a run again, each with the current content of its file."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.accepted import AcceptedFiles
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_output

_LOOKS = 16  # at once


@dataclass(frozen=True, kw_only=True)
class Retried:
    """The number of shards queued again, and the names of those whose files have changed since they were enqueued."""

    queued: int
    changed: tuple[str, ...]


def retry_run(ledger: Ledger, run_id: str, *, done_too: bool = False) -> Retried:
    """Record the files' current identities, in the output too, and queue the shards. Raises UsageError for an unknown run,
    and what the output raises.

    A file that is missing or cannot be read keeps its record; its shard will fail with the reason.
    """
    spec = ledger.spec(run_id)
    failed = [failure.shard for failure in ledger.failures(run_id)]
    changes = list(_changes(ledger.shards(run_id, None if done_too else failed)))
    if changes:
        _record(ledger, spec, changes)  # first: what is scored without it would be lost with Redis
    changed = [now for _, now in changes]
    ledger.update_shards(run_id, changed)
    queued = ledger.retry(run_id, done_too=done_too)
    ledger.update_shards(run_id, changed)  # includes shards that were done
    return Retried(queued=queued, changed=tuple(shard.name for shard in changed))


def _changes(shards: Iterable[Shard]) -> Iterator[tuple[Shard, Shard]]:
    """Each shard whose file has changed, as it was and as it is now."""

    def change(shard: Shard) -> tuple[Shard, Shard] | None:
        try:
            identity, size_bytes = identity_now(shard.uri)
        except (ShardError, TransientError, UsageError):
            return None
        now = replace(shard, identity=identity, size_bytes=size_bytes, changed=True)
        return None if identity == shard.identity else (shard, now)

    with ThreadPoolExecutor(_LOOKS) as pool:
        yield from (found for found in pool.map(change, shards) if found is not None)


def _record(ledger: Ledger, spec: RunSpec, changes: Sequence[tuple[Shard, Shard]]) -> None:
    run_id = spec.run_id
    output = open_output(spec.output_uri, run_id)
    limits = {shard.name: shard.row_limit for shard in ledger.shards(run_id)} if spec.limit_rows else {}
    known = output.accepted().get(run_id, AcceptedFiles(run_id=run_id, row_limits=limits))
    output.accept(known.after(changes))
