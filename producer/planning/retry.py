"""Queue the failed shards of a run again, each with the current content of its file."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from shardsift.fleet.errors import ShardError, TransientError, UsageError
from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import AcceptedFiles

_FILES_AT_ONCE = 16
_NAMED_SHARDS = 3


@dataclass(frozen=True, kw_only=True)
class Retried:
    """The number of shards that were queued again, and the names of shards whose files have changed since enqueueing."""

    queued: int
    changed: tuple[str, ...]


def retry_run(ledger: Ledger, run_id: str) -> Retried:
    """Queue failed shards again, and record their files' current identities in the ledger and the output.

    Also resumes a cancelled run. Raises UsageError for an unknown run, and if another run has taken the output of the
    cancelled one.

    If a file is missing or cannot be read, its recorded identity stays, and its shard will fail with the reason. If a
    file has changed, all its parts are queued, including finished ones.
    """
    spec = ledger.spec(run_id)
    if ledger.state(run_id).cancelled:
        open_output(spec.output_uri, run_id).reserve(spec)
    failed = [failure.shard for failure in ledger.failures(run_id)]
    changes = list(_changes(_of_their_files(failed, ledger, spec)))
    changed = [now for _, now in changes]
    names = tuple(shard.name for shard in changed)
    if changes:
        _check_none_is_scored(names, ledger, spec)
        _record(ledger, spec, changes)  # first: without it, rows scored from now on would be lost with Redis
    ledger.update_shards(run_id, changed)
    queued = ledger.retry(run_id, changed=names)
    ledger.update_shards(run_id, changed)  # again, for shards that were done before
    return Retried(queued=queued, changed=names)


def _of_their_files(failed: Sequence[str], ledger: Ledger, spec: RunSpec) -> Iterable[Shard]:
    """Return the failed shards and all other parts of their files, because all parts must be of one version."""
    shards = list(ledger.shards(spec.run_id, failed))
    if spec.rows_per_task is None:
        return shards
    uris = {shard.uri for shard in shards}
    return [shard for shard in ledger.shards(spec.run_id) if shard.uri in uris]


def _check_none_is_scored(changed: Sequence[str], ledger: Ledger, spec: RunSpec) -> None:
    """Raise UsageError if a worker is scoring a part of a changed file, because it may store rows of the old version."""
    running = {shard.name for shard in ledger.running_shards(spec.run_id)} if spec.rows_per_task else ()
    if held := [name for name in changed if name in running]:
        named = first_of(held, _NAMED_SHARDS)
        raise UsageError(f"A changed file has parts that are scored now: {named}. Wait for their end, then retry.")


def _changes(shards: Iterable[Shard]) -> Iterator[tuple[Shard, Shard]]:
    """Yield the old and the new version of each shard whose file has changed. Skips files that cannot be read."""

    def change(shard: Shard) -> tuple[Shard, Shard] | None:
        try:
            identity, size_bytes = identity_now(shard.uri)
        except (ShardError, TransientError, UsageError):
            return None
        now = replace(shard, identity=identity, size_bytes=size_bytes, changed=True)
        return None if identity == shard.identity else (shard, now)

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        yield from (found for found in pool.map(change, shards) if found is not None)


def _record(ledger: Ledger, spec: RunSpec, changes: Sequence[tuple[Shard, Shard]]) -> None:
    run_id = spec.run_id
    output = open_output(spec.output_uri, run_id)
    shards = ledger.shards(run_id) if spec.limit_rows or spec.rows_per_task else ()
    ranges = {shard.name: (shard.first_row, shard.row_limit) for shard in shards}
    known = output.accepted().get(run_id, AcceptedFiles(run_id=run_id, ranges=ranges, columns=spec.columns))
    output.accept(known.after(changes))
