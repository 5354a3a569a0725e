"""Change a run's limits of workers and of cost. The published bytes stay the same."""

from dataclasses import replace

from shardsift.fleet.dispatch import send_due_shards
from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.keywords import check_number
from shardsift.fleet.process.settings import Settings


def steered(
    ledger: Ledger,
    run_id: str,
    *,
    max_workers: int | None = None,
    max_cost: float | None = None,
    price_per_gpu_hour: float | None = None,
) -> Steering:
    """Return a run's limits with these changes. None keeps a limit, 0 removes it. Writes nothing.

    Raises UsageError if there is a cost limit but no price.
    """
    check_number("max_workers", max_workers or 0, least=0, whole=True)
    check_number("max_cost", max_cost or 0, least=0)
    steering = ledger.state(run_id).steering
    if max_workers is not None:
        steering = replace(steering, max_workers=max_workers or None)
    if max_cost is not None:
        steering = replace(steering, max_cost=max_cost or None)
    if price_per_gpu_hour is not None:
        steering = replace(steering, price_per_gpu_hour=price_per_gpu_hour)
    if steering.max_cost is not None and steering.price_per_gpu_hour is None:
        raise UsageError("--max-cost needs to know what a GPU costs: set SHARDSIFT_PRICE_PER_GPU_HOUR, such as 1.20.")
    return steering


def resume_run(ledger: Ledger, run_id: str, *, max_cost: float | None = None) -> bool:
    """End a pause, and set the cost limit if `max_cost` is given. Returns False if the run was not paused.

    Raises UsageError if the run would be paused again for its cost.
    """
    steering = steered(ledger, run_id, max_cost=max_cost)
    why = steering.why_too_expensive(ledger.counts(run_id).worker_seconds)
    if why and ledger.state(run_id).paused is not None:
        raise UsageError(
            f"Run {run_id} stays paused: {why}. Raise --max-cost with `producer set`, or set it to 0 for no limit."
        )
    ledger.steer(run_id, steering)
    return ledger.resume(run_id)


def send_shards(settings: Settings, ledger: Ledger, run_id: str) -> None:
    """Send the messages of shards that may be scored now, so that they need not wait for the finalizer's next sweep."""
    with make_app("producer", settings, is_current=False) as app:
        send_due_shards(app, ledger, run_id)
