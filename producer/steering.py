"""Change how fast a run is scored, at its enqueueing or later. What is scored stays the same."""

from dataclasses import dataclass, replace

from fleet.dispatch import withdraw_messages
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.records import Steering
from fleet.queues import HIGHEST


@dataclass(frozen=True, kw_only=True)
class SteeringOptions:
    """What a user gave. None was not given, and stays as it is; `max_workers` 0 ends the limit."""

    max_workers: int | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.priority is not None and not -HIGHEST <= self.priority <= HIGHEST:
            raise UsageError(f"There is no priority {self.priority}. The lowest is -{HIGHEST}, the highest {HIGHEST}.")
        if self.max_workers is not None and self.max_workers < 0:
            raise UsageError(f"A run cannot have {self.max_workers} workers. 0 means any number.")


def steer(ledger: Ledger, run_id: str, options: SteeringOptions) -> Steering:
    """Set what was given. Returns how the run is scored from now on. Due shards are to be sent after this."""
    before = ledger.steering(run_id)
    steering = before
    if options.max_workers is not None:
        steering = replace(steering, max_workers=options.max_workers or None)
    if options.priority is not None:
        steering = replace(steering, priority=options.priority)
    ledger.steer(run_id, steering)
    if steering.priority != before.priority:
        withdraw_messages(ledger, run_id)
    return steering
