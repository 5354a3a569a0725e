"""Send messages for due shards from the ledger to the broker, up to a limit per queue.

Called whenever shards become due or messages were consumed: by enqueue and retry, by a worker after each shard, and by
the finalizer's sweep. If a process dies after the ledger notes a message and before the broker has it, a later sweep
sends the shard again.
"""

import logging
from typing import Self
from uuid import uuid4

from celery import Celery
from kombu.messaging import Producer
from pydantic import BaseModel, ConfigDict, model_validator

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.process.broker import NEW, STARTED, errors_of_redis, queue_length, queue_lists, shards_in_queue
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import is_run_id, is_safe_name

# The task message. It names a run and a shard; everything else is in the ledger.
#
# A message is a hint: a lost, repeated or late one costs only time. It carries no path and no code, so a forged message
# can at most ask for a shard that the ledger already has.

SCORE_SHARD = "shardsift.score_shard"


class ScoreShard(BaseModel):
    """The content of a task message: try to score this shard of this run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run_id: str
    shard: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_run_id(self.run_id) or not is_safe_name(self.shard):
            raise ValueError("not the names of a run and a shard")
        return self


_MESSAGES_AHEAD = 2_000  # per queue: enough for a fleet between two sweeps, and at most 2 MB in Redis
_NAMED = 5  # shards that a log line names
logger = logging.getLogger(__name__)


def send_due_shards(app: Celery, ledger: Ledger, run_id: str) -> int:
    """Send a run's due shards to its scorer's queue. Returns how many.

    Safe to call repeatedly and concurrently. Sends all shards that were started before, then new ones while the queue
    has room.
    """
    queue = ledger.message_queue(run_id, ledger.spec(run_id).queue)
    total = 0
    while True:
        room = max(0, _MESSAGES_AHEAD - queue_length(ledger.redis, queue))
        due = ledger.take_due(run_id, room=room)
        with errors_of_redis(), app.producer_or_acquire() as producer:
            for priority, names in ((STARTED, due.again), (NEW, due.fresh)):
                for name in names:
                    _send(app, producer, ScoreShard(run_id=run_id, shard=name), queue, priority)
        if due.again:
            logger.info("Run %s: sent again: %s", run_id, first_of(due.again, _NAMED), extra={"run_id": run_id})
        total += len(due)
        if not due.more:  # not "until no shard is due", which may never happen in a busy fleet
            return total


def top_up(app: Celery, ledger: Ledger, run_id: str, queue: str) -> int:
    """Send due shards if the queue is less than half full. Returns how many.

    Called after every shard, so it makes only one request to Redis if there is nothing to send. It does not look for
    expired leases; the finalizer's sweeps do.
    """
    asked = ledger.redis.pipeline(transaction=False)
    asked.zcard(Keys(run_id).waiting)
    for name in queue_lists(ledger.message_queue(run_id, queue)):
        asked.llen(name)
    waiting, *lengths = asked.execute()
    return send_due_shards(app, ledger, run_id) if waiting and sum(lengths) < _MESSAGES_AHEAD // 2 else 0


def queue_lost_shards(ledger: Ledger, run_id: str, *, resend_seconds: float) -> int:
    """Queue shards again if their message is older than `resend_seconds` and no longer in the queue. Returns how many.

    Redis may have lost the message, or a worker died while it took it. If a worker still holds the message and loads its
    model, the shard is sent twice, and the ledger refuses the second claim. May run twice.
    """
    overdue = ledger.sent_before(run_id, seconds=resend_seconds)
    if not overdue:
        return 0
    queue = ledger.message_queue(run_id, ledger.spec(run_id).queue)
    waiting = set(shards_in_queue(ledger.redis, queue, run_id))
    lost = ledger.queue_again(run_id, [name for name in overdue if name not in waiting], seconds=resend_seconds)
    if lost:
        text = "Run %s: no worker has taken these shards within %g s, and their messages are gone: %s"
        logger.info(text, run_id, resend_seconds, first_of(lost, _NAMED), extra={"run_id": run_id})
    return len(lost)


def _send(app: Celery, producer: Producer, message: ScoreShard, queue: str, priority: int) -> None:
    app.send_task(
        SCORE_SHARD,
        kwargs=message.model_dump(),
        task_id=f"{message.run_id}:{message.shard}:{uuid4().hex[:8]}",  # readable in Flower, and unique
        queue=queue,
        priority=priority,
        producer=producer,
    )
