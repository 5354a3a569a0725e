"""From a plan to a training in the ledger and its message in the broker."""

import time

from celery import Celery

from fleet.dispatch import queue_lost_shards, send_due_shards
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.training.task import WHOLE, FleetTraining
from fleet.training.trained import model_of, reserve_output
from producer.steering import AS_IT_WAS, SteeringOptions, steer, steered
from producer.training.plan import TrainingPlan


def enqueue_training(
    plan: TrainingPlan,
    ledger: Ledger[FleetTraining],
    app: Celery,
    *,
    resend_seconds: float,
    steering: SteeringOptions = AS_IT_WAS,
) -> str:
    """Reserve the output, write the training and send its message. Returns its id. May run twice: the second time adds nothing.

    A model that was removed is trained again. Raises UsageError if the model is there, and was trained on other data, and
    if the output has something else or cannot be written.
    """
    training = plan.training
    training_id = training.run_id
    how = steered(ledger, training_id, steering)
    _check_data(plan, ledger)
    reserve_output(training.spec)
    ledger.add_shards(training, [plan.data], now=time.time())
    steer(ledger, training_id, how)
    ledger.mark_enqueued(training_id, shards=1)
    ledger.update_shards(training_id, [plan.data])
    if ledger.recorded(training_id, WHOLE) and model_of(training.spec) is None:
        ledger.retry(training_id, done_too=True)
    queue_lost_shards(ledger, training_id, resend_seconds=resend_seconds)
    send_due_shards(app, ledger, training_id)
    return training_id


def _check_data(plan: TrainingPlan, ledger: Ledger[FleetTraining]) -> None:
    training_id, output = plan.training.run_id, plan.training.spec.output_uri
    if ledger.recorded(training_id, WHOLE) is None or model_of(plan.training.spec) is None:
        return
    (trained_on,) = ledger.shards(training_id, [WHOLE])
    if trained_on.identity != plan.data.identity:
        raise UsageError(
            f"{plan.data.uri} has changed since the model at {output} was trained on it. Name another --output, or remove "
            "that model to train it again."
        )
