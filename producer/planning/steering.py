"""Change how fast and for how much a run is scored, when it is enqueued or later. What is scored stays the same."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from shardsift.fleet.errors import ShardError, TransientError, UsageError
from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.process.keywords import check_number
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import AcceptedFiles


@dataclass(frozen=True, kw_only=True)
class SteeringOptions:
    """The limits that a user gave. None was not given, and stays as it is; 0 ends the limit of workers or of cost."""

    max_workers: int | None = None
    max_cost: float | None = None
    price_per_gpu_hour: float | None = None
    allow_mixed: bool | None = None

    def __post_init__(self) -> None:
        check_number("max_workers", self.max_workers or 0, whole=True)
        check_number("max_cost", self.max_cost or 0)
        if self.max_workers is not None and self.max_workers < 0:
            raise UsageError(f"A run cannot have {self.max_workers} workers. 0 means any number.")
        if min(self.max_cost or 0, self.price_per_gpu_hour or 0) < 0:
            raise UsageError("--max-cost cannot be negative. 0 means no limit.")


AS_IT_WAS = SteeringOptions()


def steered(ledger: Ledger, run_id: str, options: SteeringOptions) -> Steering:
    """How the run is scored with these options. Raises UsageError for a limit of cost without a price."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    endless = {name: None for name in ("max_workers", "max_cost") if given.get(name) == 0}
    steering = replace(ledger.steering(run_id), **given | endless)
    if steering.max_cost is not None and steering.price_per_gpu_hour is None:
        raise UsageError("--max-cost needs to know what a GPU costs: set SHARDSIFT_PRICE_PER_GPU_HOUR, such as 1.20.")
    return steering


def resume_run(ledger: Ledger, run_id: str, options: SteeringOptions) -> bool:
    """End a pause. Returns False if there is none. Raises UsageError if the run would be paused again for its cost."""
    steering = steered(ledger, run_id, options)
    why = steering.why_too_expensive(ledger.counts(run_id).worker_seconds)
    if why and ledger.pause_reason(run_id) is not None:
        raise UsageError(f"Run {run_id} stays paused: {why}. Resume it with a higher --max-cost, or 0 for no limit.")
    ledger.steer(run_id, steering)
    return ledger.resume(run_id)


# Queue the failed shards of a run again, each with the current content of its file.

_LOOKS = 16  # at once
_NAMED_SHARDS = 3


@dataclass(frozen=True, kw_only=True)
class Retried:
    """The number of shards queued again, and the names of those whose files have changed since they were enqueued."""

    queued: int
    changed: tuple[str, ...]


def retry_run(ledger: Ledger, run_id: str, *, done_too: bool = False) -> Retried:
    """Record the files' current identities, in the output too, and queue the shards; a cancelled run is resumed.

    Raises UsageError for an unknown run, and if another run has taken the output of a cancelled one.

    A file that is missing or cannot be read keeps its record; its shard will fail with the reason. Of a changed file, parts
    that are done are queued too.
    """
    spec = ledger.spec(run_id)
    if ledger.is_cancelled(run_id):
        open_output(spec.output_uri, run_id).reserve(spec)
    failed = [failure.shard for failure in ledger.failures(run_id)]
    changes = list(_changes(ledger.shards(run_id) if done_too else _of_their_files(failed, ledger, spec)))
    changed = [now for _, now in changes]
    names = tuple(shard.name for shard in changed)
    if changes:
        _check_none_is_scored(names, ledger, spec)
        _record(ledger, spec, changes)  # first: what is scored without it would be lost with Redis
    ledger.update_shards(run_id, changed)
    queued = ledger.retry(run_id, done_too=done_too, changed=names)
    ledger.update_shards(run_id, changed)  # includes shards that were done
    return Retried(queued=queued, changed=names)


def _of_their_files(failed: Sequence[str], ledger: Ledger, spec: RunSpec) -> Iterable[Shard]:
    """The failed shards, and the other parts of their files: no file is scored partly as it was and partly as it is now."""
    shards = list(ledger.shards(spec.run_id, failed))
    if spec.rows_per_task is None:
        return shards
    uris = {shard.uri for shard in shards}
    return [shard for shard in ledger.shards(spec.run_id) if shard.uri in uris]


def _check_none_is_scored(changed: Sequence[str], ledger: Ledger, spec: RunSpec) -> None:
    """Raises UsageError if a part of a changed file is scored now: it may end with the rows that were there before."""
    running = {shard.name for shard in ledger.running_shards(spec.run_id)} if spec.rows_per_task else ()
    if held := [name for name in changed if name in running]:
        named = first_of(held, _NAMED_SHARDS)
        raise UsageError(f"A changed file has parts that are scored now: {named}. Wait for their end, then retry.")


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
    shards = ledger.shards(run_id) if spec.limit_rows or spec.rows_per_task else ()
    ranges = {shard.name: (shard.first_row, shard.row_limit) for shard in shards}
    known = output.accepted().get(run_id, AcceptedFiles(run_id=run_id, ranges=ranges, columns=spec.columns))
    output.accept(known.after(changes))
