"""Every error of shardsift, as one tree; a class stands where someone catches it.

ShardsiftError
├── UsageError        the user can mend it      → one line on stderr, exit code 2
├── ShardError        this shard cannot be done → recorded as failed; the worker goes on
├── TransientError    it may pass by itself     → the shard is tried again, later
├── LeaseLost         another worker has it now → the worker drops its output
├── NewerVersion      a message of a newer fleet → left to workers that understand it
├── RunUnknown        Redis came back empty     → the worker ends its shard; the receipt beside the output tells
├── Stopped           the worker is to leave    → checkpoint, release, exit
├── PublishConflict   the output moved under us → the finalizer looks again
└── OutputDamaged     stored files are not as their receipts say → the finalizer queues those shards again
"""

from collections.abc import Mapping

from fleet.counted import counted


class ShardsiftError(Exception):
    """Base of all errors that shardsift raises on purpose."""


class UsageError(ShardsiftError):
    """Something the user asked for cannot be; the message says what to do instead."""


class ShardError(ShardsiftError):
    """A shard that no further attempt can save: corrupt, of the wrong schema, not there."""


class TransientError(ShardsiftError):
    """A failure of network, disk or service that a later attempt may not meet.

    `retry_after_seconds` is how long the service asks to wait, if it does.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class LeaseLost(ShardsiftError):
    """The ledger gave the shard to another attempt, or the run was cancelled."""


class NewerVersion(ShardsiftError):
    """The sender is of a newer version than we are."""


class RunUnknown(ShardsiftError):
    """The ledger does not have the run any more."""


class Stopped(ShardsiftError):
    """The worker was asked to stop and did so between two batches."""


class PublishConflict(ShardsiftError):
    """The output changed between our look at it and our commit."""


class OutputDamaged(ShardsiftError):
    """Stored files are lost or damaged. `damaged` says by shard what is wrong; the other shards are safe."""

    def __init__(self, damaged: Mapping[str, str]) -> None:
        first = next(iter(damaged.values()), "")
        super().__init__(f"The stored files of {counted(len(damaged), 'shard')} are lost or damaged: {first}")
        self.damaged = dict(damaged)
