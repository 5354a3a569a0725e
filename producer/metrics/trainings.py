"""What the ledger says of trainings, as metrics by Prometheus' conventions."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from fleet.training.task import FleetTraining
from producer.metrics.labels import device_label
from producer.status import Present
from producer.training.status import TrainingStatus, training_status

_ENDED_TRAININGS = 20  # the newest; all others that have ended are left out
_STATES = (  # without `damaged`, for which outputs would have to be looked at
    *("half enqueued", "queued", "loading", "running", "paused"),
    *("done", "failed", "cancelled"),
)


def training_metrics(ledger: Ledger[FleetTraining], present: Present) -> Iterator[Metric]:
    statuses = _statuses(ledger, present)
    yield _of_states(statuses)
    yield from _of_progress(statuses)
    yield from _of_workers(statuses)
    yield from _of_costs(statuses)


def _statuses(ledger: Ledger[FleetTraining], present: Present) -> list[TrainingStatus]:
    """Those that have not ended, and the newest of the others. Only these are read."""
    unfinished = ledger.unfinished_ids()
    ended = [one for one in ledger.run_ids() if one not in set(unfinished)][:_ENDED_TRAININGS]
    found = []
    for training_id in (*unfinished, *ended):
        try:
            found.append(training_status(ledger, training_id, present=present, looks=False))
        except NewerVersion:
            continue
    return found


def _of_states(statuses: list[TrainingStatus]) -> Metric:
    states = GaugeMetricFamily(
        "shardsift_trainings", "1 for the state that a training is in, and 0 for others.", labels=["training", "state"]
    )
    for status in statuses:
        for state in _STATES:
            states.add_metric([status.training_id, state], state == status.word)
    return states


def _of_progress(statuses: list[TrainingStatus]) -> Iterator[Metric]:
    """Steps are a gauge, because a training that lost its worker goes back to its last checkpoint."""
    labels = ["training"]
    steps = GaugeMetricFamily("shardsift_training_steps", "Steps that a training has taken.", labels=labels)
    planned = GaugeMetricFamily(
        "shardsift_training_planned_steps", "Steps that a training takes, once they are known.", labels=labels
    )
    loss = GaugeMetricFamily("shardsift_training_loss", "The last loss of a training.", labels=labels)
    held_out = GaugeMetricFamily(
        "shardsift_training_held_out_loss", "The last loss on the held-out rows of a training.", labels=labels
    )
    left = GaugeMetricFamily(
        "shardsift_training_remaining_seconds", "Estimated time until the last step of a training.", labels=labels
    )
    for status in statuses:
        training, progress = [status.training_id], status.progress
        if progress and progress.planned_steps:
            steps.add_metric(training, progress.step)
            planned.add_metric(training, progress.planned_steps)
        if progress and progress.loss is not None:
            loss.add_metric(training, progress.loss)
        if progress and progress.held_out_loss is not None:
            held_out.add_metric(training, progress.held_out_loss)
        if status.seconds_left is not None:
            left.add_metric(training, status.seconds_left)
    yield from (steps, planned, loss, held_out, left)


def _of_workers(statuses: list[TrainingStatus]) -> Iterator[Metric]:
    labels = ["training"]
    unserved = GaugeMetricFamily(
        "shardsift_training_unserved",
        "1 if a training waits, no worker trains, and no machine would start one that does.",
        labels=labels,
    )
    silent = GaugeMetricFamily(
        "shardsift_training_silent_seconds", "Time since the worker of a training last reported.", labels=labels
    )
    idle = GaugeMetricFamily(
        "shardsift_training_idle_seconds",
        "Time since the worker of a training last took a step, or did a batch of texts.",
        labels=labels,
    )
    for status in statuses:
        training = [status.training_id]
        unserved.add_metric(training, status.is_unserved)
        if status.word == "running" and status.running:
            silent.add_metric(training, status.running.seen_seconds)
            if status.idle_seconds is not None:
                idle.add_metric(training, status.idle_seconds)
    yield from (unserved, silent, idle)


def _of_costs(statuses: list[TrainingStatus]) -> Iterator[Metric]:
    labels = ["training", "device"]
    seconds = CounterMetricFamily(
        "shardsift_training_device_seconds",
        "Time in which workers have held a training, by device; that of which no device was reported is of `unknown`.",
        labels=labels,
    )
    cost = GaugeMetricFamily(
        "shardsift_training_cost",
        "What these seconds cost, by the list price of the device in US dollars.",
        labels=labels,
    )
    for status in statuses:
        for one in status.costs:
            of_device = [status.training_id, device_label(one.device)]
            seconds.add_metric(of_device, one.device_seconds)
            if one.device_cost is not None:
                cost.add_metric(of_device, one.device_cost)
    yield from (seconds, cost)
