"""Change how fast a run is scored, at its enqueueing or later. What is scored stays the same."""

from dataclasses import dataclass, replace

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.records import Steering


@dataclass(frozen=True, kw_only=True)
class SteeringOptions:
    """What a user gave. None was not given, and stays as it is; `max_workers` 0 ends the limit."""

    max_workers: int | None = None

    def __post_init__(self) -> None:
        if self.max_workers is not None and self.max_workers < 0:
            raise UsageError(f"A run cannot have {self.max_workers} workers. 0 means any number.")


def steer(ledger: Ledger, run_id: str, options: SteeringOptions) -> Steering:
    """Set what was given. Returns how the run is scored from now on."""
    steering = ledger.steering(run_id)
    if options.max_workers is not None:
        steering = replace(steering, max_workers=options.max_workers or None)
    ledger.steer(run_id, steering)
    return steering
