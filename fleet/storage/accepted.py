"""Input files that changed after a run was enqueued, and that `producer retry` accepted. They belong to the run from then on.

Recorded with the output, so that the same command finds its run again when Redis has lost it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from fleet.shard import Shard

ACCEPTED_PATH = ".shardsift/accepted.json"


@dataclass(frozen=True, kw_only=True)
class AcceptedFiles:
    run_id: str
    identities: dict[str, tuple[str, str]] = field(default_factory=dict)  # shard → as enqueued, as accepted
    row_limits: dict[str, int | None] = field(default_factory=dict)  # of each shard of a run with --limit-rows

    def after(self, changes: Iterable[tuple[Shard, Shard]]) -> "AcceptedFiles":
        """With the changed files of these shards, each before and after it was accepted."""
        new = {was.name: (self.identities.get(was.name, (was.identity,))[0], now.identity) for was, now in changes}
        return replace(self, identities=self.identities | new)

    def has(self, shard: Shard) -> bool:
        return self.identities.get(shard.name, ("", ""))[1] == shard.identity

    def as_enqueued(self, shard: Shard) -> Shard:
        return replace(shard, identity=self.identities[shard.name][0]) if self.has(shard) else shard

    def to_json(self) -> bytes:
        return _ACCEPTED.dump_json(self)


_ACCEPTED = TypeAdapter(AcceptedFiles)


def read_accepted(content: bytes | None) -> AcceptedFiles | None:
    """The files written by `to_json`; None if there are none, or the record is damaged."""
    with suppress(ValueError):
        return _ACCEPTED.validate_json(content or b"")
    return None
