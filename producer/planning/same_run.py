"""Find the run with the same options, if only its input files have changed since."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from fleet.errors import ShardError, UsageError
from fleet.ledger import Ledger
from fleet.process.wording import first_of
from fleet.run.spec import RunSpec, Shard
from fleet.storage.opening import open_output
from producer.planning.inputs import Input, digest_of

_NAMED = 3  # files in a message


def resumed(spec: RunSpec, source: Input) -> tuple[RunSpec, tuple[Shard, ...]]:
    """The run and its shards. Files that have changed since, and that `producer retry` accepted, make no other run."""
    with suppress(ShardError):  # reserving the output says what is wrong with it
        for run_id, accepted in open_output(spec.output_uri, spec.run_id).accepted().items():
            earlier = replace(spec, input_revision=digest_of(map(accepted.as_enqueued, source.listed)))
            if earlier.run_id == run_id:
                shards, limits = source.shards, accepted.row_limits
                if limits:  # the files have other lengths now, so the limit of rows would choose other shards
                    named = (shard for shard in source.listed if shard.name in limits)
                    shards = tuple(replace(shard, row_limit=limits[shard.name]) for shard in named)
                return earlier, tuple(replace(shard, changed=accepted.has(shard)) for shard in shards)
    return spec, source.shards


@contextmanager
def changed_files_told(spec: RunSpec, shards: Sequence[Shard], ledger: Ledger) -> Iterator[None]:
    """Add to the error for an occupied output which changed files make this a different run."""
    try:
        yield
    except UsageError as refusal:
        earlier = _same_but_files(spec, ledger)
        if earlier is None:
            raise
        there, here = _identities(ledger.shards(earlier.run_id)), _identities(shards)
        raise UsageError(
            f"{refusal} Since that run was enqueued, input files were {files_differ(there, here)}. "
            f"To score changed files of failed shards as they are now: producer retry {earlier.run_id}"
        ) from refusal


def _same_but_files(spec: RunSpec, ledger: Ledger) -> RunSpec | None:
    """The newest other run with these options and the same input URIs."""
    run_ids = ledger.run_ids()
    if spec.run_id in run_ids:
        return None
    for run_id in run_ids:
        earlier = ledger.spec(run_id)
        if replace(earlier, input_revision=spec.input_revision) == spec:
            return earlier
    return None


def _identities(shards: Iterable[Shard]) -> dict[str, str]:
    return {shard.name: shard.identity for shard in shards}


def files_differ(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """How two sets of files differ, such as `changed: a, b; added: c`. Both are name → identity."""
    kinds = {
        "changed": [name for name in there if name in here and here[name] != there[name]],
        "added": [name for name in here if name not in there],
        "removed": [name for name in there if name not in here],
    }
    return "; ".join(f"{kind}: {first_of(names, _NAMED)}" for kind, names in kinds.items() if names)
