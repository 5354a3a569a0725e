"""How commands change a training, and what they say of it."""

from fleet.command_line import say
from fleet.dispatch import send_due_shards
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.settings import Settings
from fleet.training.data import training_data
from fleet.training.task import FleetTraining
from producer.steering import SteeringOptions, steer, steered
from producer.training.report import what_next
from producer.training.status import training_status


def cancel_training(ledger: Ledger[FleetTraining], training_id: str) -> None:
    """A worker that trains saves a checkpoint first."""
    _check_not_done(ledger, training_id)
    ledger.cancel(training_id)
    say(f"Training {training_id} is cancelled.")


def pause_training(ledger: Ledger[FleetTraining], training_id: str) -> None:
    _check_not_done(ledger, training_id)
    ledger.pause(training_id)
    say(f"Training {training_id} is paused. Resume it: producer resume {training_id}")


def resume_training(ledger: Ledger[FleetTraining], training_id: str, settings: Settings) -> None:
    ledger.spec(training_id)
    was_paused = ledger.resume(training_id)
    _send(ledger, training_id, settings)
    say(f"Training {training_id} is resumed." if was_paused else f"Training {training_id} is not paused.")
    _say_next(ledger, training_id)


def set_training(ledger: Ledger[FleetTraining], training_id: str, options: SteeringOptions, settings: Settings) -> None:
    """Change the priority. A training has one worker, and no limit of cost."""
    if options != SteeringOptions(priority=options.priority):
        raise UsageError("Of a training, --priority can be changed, and nothing else.")
    ledger.spec(training_id)
    steer(ledger, training_id, steered(ledger, training_id, options))
    _send(ledger, training_id, settings)
    say(f"Training {training_id}: priority {ledger.steering(training_id).priority}.")


def retry_training(ledger: Ledger[FleetTraining], training_id: str, settings: Settings) -> None:
    """Queue a failed or cancelled training again. It goes on after its last checkpoint, unless its data has changed."""
    from producer.retry import retry_run

    before = training_status(ledger, training_id)
    if before.model and before.is_there:
        say(f"Training {training_id} is done: nothing to retry.")
        return
    spec = before.training.spec
    retried = retry_run(ledger, training_id, done_too=before.model is not None, look=lambda _: training_data(spec))
    _send(ledger, training_id, settings)
    if retried.changed:
        say("The data has changed since the training was enqueued. It begins again with what is there now.")
    if retried.queued or before.cancelled:
        still = "" if before.paused is None else ", and still paused"
        say(f"Training {training_id} is {'resumed' if before.cancelled else 'queued again'}{still}.")
    else:
        say(f"Training {training_id} is {before.word}, and has not failed: nothing to retry.")
    _say_next(ledger, training_id)


def _check_not_done(ledger: Ledger[FleetTraining], training_id: str) -> None:
    status = training_status(ledger, training_id)
    if status.model:
        raise UsageError(f"Training {training_id} is done: its model is at {status.training.spec.output_uri}.")


def _send(ledger: Ledger[FleetTraining], training_id: str, settings: Settings) -> None:
    from fleet.broker import make_app

    send_due_shards(make_app("producer", settings), ledger, training_id)


def _say_next(ledger: Ledger[FleetTraining], training_id: str) -> None:
    for line in what_next(training_status(ledger, training_id)):
        say(line)
