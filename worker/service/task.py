"""The tasks: claim a shard and score it, or claim a training. If a message arrives twice, the second finds it claimed."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from celery import Task, signals
from celery.exceptions import Reject
from pydantic import ValidationError

from fleet.errors import NewerVersion, Stopped
from fleet.ledger import Claim, Ledger, Refusal, new_nonce
from fleet.ledger.kinds import S
from fleet.message import NEWER, NOT_OURS, SCORE_SHARD, TRAIN, ScoreShard
from fleet.queues import message_priorities
from fleet.training.task import FleetTraining
from worker.app import app
from worker.service.attempt import Attempt, Work, redis_may_be_away
from worker.service.child import Child, start_child
from worker.service.ipc import owner_name
from worker.service.scoring_work import ScoringWork
from worker.service.steps import Steps
from worker.service.waiting import wait_for_redis

_LEAVE_SECONDS = 2.0  # before a message for other workers goes back to the queue
logger = logging.getLogger(__name__)


class ShardTask(Task):  # type: ignore[misc]  # Celery has no types
    """A task that runs in a child process."""

    child: Child  # this process; set before the first task


@signals.worker_process_init.connect
def _start_child(**_: Any) -> None:
    ShardTask.child = start_child()


@signals.worker_process_shutdown.connect
def _end_child(**_: Any) -> None:
    if child := getattr(ShardTask, "child", None):  # none in a process that ends while it starts
        child.traces.close()


@app.task(bind=True, base=ShardTask, name=SCORE_SHARD)
def score_shard_task(self: ShardTask, *positional: object, **fields: object) -> str:
    """Score one shard. Returns a sentence for Flower; raises the error that failed the shard."""
    asked_at = time.time()

    def work(claim: Claim, worker: str) -> Work:
        return ScoringWork(claim=claim, child=self.child, task=self, worker=worker, steps=Steps(asked_at=asked_at))

    return _attempt(self, self.child.ledger, work, fields | _named(positional))


@app.task(bind=True, base=ShardTask, name=TRAIN)
def train_task(self: ShardTask, *positional: object, **fields: object) -> str:
    """Train one classifier. Returns a sentence for Flower; raises the error that failed the training."""
    ledger = self.child.ledger.trainings

    def work(claim: Claim[FleetTraining], worker: str) -> Work:
        from worker.service.training_work import TrainingWork  # imports transformers' Trainer

        return TrainingWork(claim=claim, ledger=ledger, child=self.child, task=self, worker=worker)

    return _attempt(self, ledger, work, fields | _named(positional))


def _attempt(
    task: ShardTask, ledger: Ledger[S], work: Callable[[Claim[S], str], Work], fields: dict[str, object]
) -> str:
    """Claim what the message names, and work on it."""
    child = task.child
    child.install_signal_handlers()
    try:
        message = ScoreShard.understood(fields)
    except NewerVersion as newer:
        return _leave_newer(task, fields, newer)
    except ValidationError as error:
        logger.warning("Refused a message that is not one of ours: %s", error)
        _count_refused(child, NOT_OURS)
        raise
    if message.run_id in child.avoided:
        return _leave_to_others(task, fields, f"This worker avoids {message.run_id}: its log says why.")
    worker = owner_name(task.request.hostname, os.getppid())
    try:
        if child.stopping.is_set():
            raise Stopped("The worker is stopping.")
        nonce = new_nonce()
        claim = wait_for_redis(
            lambda: ledger.claim(message.run_id, message.shard, owner=worker, nonce=nonce), child.stopping
        )
    except Stopped as stop:
        raise Reject(str(stop), requeue=True) from stop
    except NewerVersion as newer:
        return _leave_newer(task, fields, newer)
    if isinstance(claim, Refusal):
        if claim is Refusal.RUNNING:
            told = {"run_id": message.run_id, "shard": message.shard}
            logger.info("Shard %s of %s: another worker has it", message.shard, message.run_id, extra=told)
        return f"nothing to do: {claim}"
    return Attempt(claim=claim, ledger=ledger, child=child, task=task, work=work(claim, worker)).run()


def _named(positional: tuple[object, ...]) -> dict[str, object]:
    """Our messages have no positional arguments. As fields with a number for a name, decoding refuses and counts them."""
    return {str(place): value for place, value in enumerate(positional)}


def _leave_newer(task: ShardTask, fields: dict[str, object], newer: NewerVersion) -> str:
    logger.warning("Left to other workers: %s", newer)
    _count_refused(task.child, NEWER)
    return _leave_to_others(task, fields, str(newer))


def _leave_to_others(task: ShardTask, fields: dict[str, object], why: str) -> str:
    """Send the message again, as for a new shard. At its old place, this worker would take it again before all others."""
    task.child.stopping.wait(_LEAVE_SECONDS)
    queue = task.request.delivery_info["routing_key"]
    _, later = message_priorities(0)
    with redis_may_be_away():
        app.send_task(task.name, kwargs=fields, task_id=task.request.id, queue=queue, priority=later)
    return why


def _count_refused(child: Child, what: str) -> None:
    with redis_may_be_away():
        child.ledger.count_refused(what)
