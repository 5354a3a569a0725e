"""The run that the ledger already has for the same options, though its input files changed since."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.shard import Shard
from fleet.spec import RunSpec

_NAMED = 3  # files in a message


def same_run(spec: RunSpec, shards: Sequence[Shard], ledger: Ledger) -> RunSpec:
    """The spec; but that of an earlier run if `producer retry` took its replaced files as they are now: it goes on."""
    earlier = _same_but_files(spec, ledger)
    if earlier is None or _identities(ledger.shards(earlier.run_id)) != _identities(shards):
        return spec
    return earlier


@contextmanager
def changed_files_told(spec: RunSpec, shards: Sequence[Shard], ledger: Ledger) -> Iterator[None]:
    """Add to the refusal of an output which files make this another run than the one that has it."""
    try:
        yield
    except UsageError as refusal:
        earlier = _same_but_files(spec, ledger)
        if earlier is None:
            raise
        there, here = _identities(ledger.shards(earlier.run_id)), _identities(shards)
        raise UsageError(
            f"{refusal} {_difference(there, here)} To score changed files of failed shards as they are now: "
            f"producer retry {earlier.run_id}"
        ) from refusal


def _same_but_files(spec: RunSpec, ledger: Ledger) -> RunSpec | None:
    """The newest other run of these options over the same places."""
    run_ids = ledger.run_ids()
    if spec.run_id in run_ids:
        return None
    for run_id in run_ids:
        with suppress(ValueError):  # a spec of an earlier release
            earlier = ledger.spec(run_id)
            if replace(earlier, input_revision=spec.input_revision) == spec:
                return earlier
    return None


def _identities(shards: Iterable[Shard]) -> dict[str, str]:
    return {shard.name: shard.identity for shard in shards}


def _difference(there: dict[str, str], here: dict[str, str]) -> str:
    kinds = {
        "changed": [name for name in there if name in here and here[name] != there[name]],
        "added": [name for name in here if name not in there],
        "removed": [name for name in there if name not in here],
    }
    told = "; ".join(f"{kind}: {_some(names)}" for kind, names in kinds.items() if names)
    return f"Since that run was enqueued, input files were {told}."


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
