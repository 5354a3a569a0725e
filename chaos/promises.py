"""The promises that a storm checks, and the record of a broken one."""

from dataclasses import dataclass
from enum import StrEnum


class Promise(StrEnum):
    """Named after the violation. A report counts each, and all counts must be 0."""

    LOST = "shards lost"  # neither done nor failed, or not in the manifest
    DOUBLED = "shards doubled"  # recorded by two attempts, or listed twice
    COMMITTED_TWICE = "runs committed twice"
    OTHER_BYTES = "runs with other bytes"  # than a run without faults has
    FALSELY_PUBLISHED = "runs falsely said to be published"  # over files that are missing
    NOT_PUBLISHED = "runs not published"  # in time, or not as they should be
    WRONGLY_FAILED = "shards wrongly failed"  # or poison that was not, or not after as many crashes as it should be
    NOT_HELD = (
        "pauses or limits not held"  # a paused run's shard was claimed, or more workers than it may have kept shards
    )
    LEFT_BEHIND = "things left behind"  # messages, leases, checkpoints, branches, processes
    TOO_DEAR = "costs over their bound"  # in time or in work


@dataclass(frozen=True)
class Broken:
    promise: Promise
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"
