"""The Celery task: claim a shard, and work on it until the next one may begin.

If a message arrives twice, the second one finds the shard claimed.
"""

import logging
import os
import threading
from typing import Any

from celery import Celery, Task, signals
from celery.exceptions import Reject, Retry
from pydantic import ValidationError

from shardsift.fleet.dispatch import SCORE_SHARD, ScoreShard
from shardsift.fleet.errors import ShardsiftError, Stopped, TransientError
from shardsift.fleet.ledger import Claim, Refusal, new_nonce
from shardsift.fleet.process.redis_away import redis_may_be_away, wait_for_redis
from shardsift.worker.app import app
from shardsift.worker.service.attempt import Attempt
from shardsift.worker.service.child import ScoringChild, start_child
from shardsift.worker.service.ipc import owner_name

logger = logging.getLogger(__name__)


class ShardTask(Task):  # type: ignore[misc]  # Celery has no types
    """A task that runs in a child process."""

    child: ScoringChild  # set before the first task


@signals.worker_process_init.connect
def _start_child(**_: Any) -> None:
    ShardTask.child = start_child()


@signals.worker_process_shutdown.connect
def _drain(**_: Any) -> None:
    ShardTask.child.in_hand.drain()


@app.task(bind=True, base=ShardTask, name=SCORE_SHARD)
def score_shard_task(self: ShardTask, *positional: object, **fields: object) -> str:
    """Score one shard. Returns a sentence for Flower. Raises errors that occur before the next shard may begin."""
    child = self.child
    child.install_signal_handlers()
    fields |= _named(positional)
    try:
        message = ScoreShard.model_validate(fields)
    except ValidationError as error:
        logger.warning("Refused a message that is not one of ours: %s", error)
        raise ShardsiftError("Not a message of shardsift.") from error
    if child.in_hand.has(message.run_id, message.shard):
        return f"nothing to do: {Refusal.RUNNING}"
    work = _Work(child, message, self.app, worker=owner_name(self.request.hostname, os.getppid()))
    try:
        return child.in_hand.begin(message.run_id, message.shard, work)
    except TransientError as error:
        raise Retry(str(error)) from error  # only for Flower, because the ledger decides when


class _Work:
    def __init__(self, child: ScoringChild, message: ScoreShard, app: Celery, *, worker: str) -> None:
        self._child, self._message, self._app, self._worker = child, message, app, worker
        self._attempt: Attempt | None = None  # None if there is nothing to give back

    def run(self, may_begin_next: threading.Event) -> str:
        child, message = self._child, self._message
        try:
            claim = _claim(child, message, self._worker)
        except ShardsiftError as error:
            logger.error("Shard %s of %s was not begun: %s", message.shard, message.run_id, error)
            raise
        if isinstance(claim, Refusal):
            return f"nothing to do: {claim}"
        self._attempt = Attempt(
            claim=claim, child=child, may_begin_next=may_begin_next, app=self._app, worker=self._worker
        )
        try:
            return self._attempt.run()
        finally:
            self._attempt = None

    def give_back(self) -> None:
        if attempt := self._attempt:
            attempt.give_back()


def _claim(child: ScoringChild, message: ScoreShard, worker: str) -> Claim | Refusal:
    """Claim a shard, or return why it is refused. Waits for Redis.

    If the worker is stopping, raises Reject, which returns the message to the queue.
    """
    nonce = new_nonce()
    try:
        if child.stopping.is_set():
            raise Stopped("The worker is stopping.")
        claim = wait_for_redis(
            lambda: child.ledger.claim(
                message.run_id, message.shard, owner=worker, nonce=nonce, number_format=child.number_format
            ),
            child.stopping,
        )
    except Stopped as stop:
        raise Reject(str(stop), requeue=True) from stop
    if claim is Refusal.RUNNING:
        fields = {"run_id": message.run_id, "shard": message.shard}
        logger.info("Shard %s of %s: another worker has it", message.shard, message.run_id, extra=fields)
    if claim is Refusal.FORMAT:
        with redis_may_be_away():
            child.on_other_format(message.run_id)
    return claim


def _named(positional: tuple[object, ...]) -> dict[str, object]:
    """Name positional arguments by number, so that decoding refuses them. Our messages have none."""
    return {str(number): value for number, value in enumerate(positional)}
