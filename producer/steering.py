"""Change how fast, how soon and for how much a run is scored, when it is enqueued or later. What is scored stays the same."""

from dataclasses import asdict, dataclass, replace

from fleet.dispatch import withdraw_messages
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.records import Steering
from fleet.queues import HIGHEST


@dataclass(frozen=True, kw_only=True)
class SteeringOptions:
    """What a user gave. None was not given, and stays as it is; 0 ends the limit of workers or of cost."""

    max_workers: int | None = None
    priority: int | None = None
    max_cost: float | None = None
    price_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        if self.priority is not None and not -HIGHEST <= self.priority <= HIGHEST:
            raise UsageError(f"There is no priority {self.priority}. The lowest is -{HIGHEST}, the highest {HIGHEST}.")
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


def steer(ledger: Ledger, run_id: str, steering: Steering) -> None:
    """Set this. Due shards are to be sent after it."""
    priority_before = ledger.steering(run_id).priority
    ledger.steer(run_id, steering)
    if steering.priority != priority_before:
        withdraw_messages(ledger, run_id)


def resume_run(ledger: Ledger, run_id: str, options: SteeringOptions) -> bool:
    """End a pause. Returns False if there is none. Raises UsageError if the run would be paused again for its cost."""
    steering = steered(ledger, run_id, options)
    why = steering.why_too_expensive(ledger.counts(run_id).worker_seconds)
    if why and ledger.pause_reason(run_id) is not None:
        raise UsageError(f"Run {run_id} stays paused: {why}. Resume it with a higher --max-cost, or 0 for no limit.")
    steer(ledger, run_id, steering)
    return ledger.resume(run_id)
