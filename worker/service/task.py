"""The Celery task: attempt a shard, and work on it until the next one may begin.

If a message arrives twice, the second one finds the shard claimed.
"""

import logging
import os
from typing import Any

from celery import Task, signals
from celery.exceptions import Retry
from pydantic import ValidationError

from shardsift.fleet.dispatch import SCORE_SHARD, ScoreShard
from shardsift.fleet.errors import ShardsiftError, TransientError
from shardsift.fleet.ledger import Refusal
from shardsift.worker.app import app
from shardsift.worker.service.attempt import Attempt
from shardsift.worker.service.child import ScoringChild, start_child
from shardsift.worker.service.ipc import owner_name

logger = logging.getLogger(__name__)


class ShardTask(Task):  # type: ignore[misc]  # Celery has no types
    child: ScoringChild  # set before the first task


@signals.worker_process_init.connect
def _start_child(**_: Any) -> None:
    ShardTask.child = start_child()


@signals.worker_process_shutdown.connect
def _drain(**_: Any) -> None:
    ShardTask.child.in_hand.drain()


@app.task(bind=True, base=ShardTask, name=SCORE_SHARD)
def score_shard_task(self: ShardTask, *positional: object, **fields: object) -> str:
    """Score one shard. Returns a sentence for Flower.

    Returns before the shard is done if the next one may begin beside it. Raises an error only if it occurs before that.
    """
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
    worker = owner_name(self.request.hostname, os.getppid())
    try:
        return child.in_hand.begin(message.run_id, message.shard, Attempt(child, message, self.app, worker=worker))
    except TransientError as error:
        raise Retry(str(error)) from error  # only for Flower, because the ledger decides when


def _named(positional: tuple[object, ...]) -> dict[str, object]:
    """Return positional arguments as fields "0", "1" and so on. Our messages have none, so decoding refuses these fields."""
    return {str(number): value for number, value in enumerate(positional)}
