"""Send messages for due shards from the ledger to the broker, up to a limit per queue.

Called whenever shards become due or messages were consumed: by enqueue and retry, by a worker after each shard, and by
the finalizer's sweep. A process that dies between ledger and broker loses a message but no shard: a later sweep sends
the shard again.
"""

from uuid import uuid4

from celery import Celery
from kombu.messaging import Producer

from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN, SCORE_SHARD, FinalizeRun, ScoreShard
from fleet.queues import FIRST, LATER, queue_length, shards_in_queue

_MESSAGES_AHEAD = 2_000  # per queue: enough for a fleet between two sweeps, and at most 2 MB of Redis


def send_due_shards(app: Celery, ledger: Ledger, run_id: str) -> int:
    """Send the due shards of a run to its scorer's queue. Returns how many. Safe to call repeatedly and concurrently.

    Shards that were started before are all sent, and first. New ones follow while the queue has room.
    """
    queue = ledger.spec(run_id).queue
    total = 0
    while True:
        room = max(0, _MESSAGES_AHEAD - queue_length(ledger.redis, queue))
        due = ledger.take_due(run_id, room=room)
        with app.producer_or_acquire() as producer:
            for priority, names in ((FIRST, due.again), (LATER, due.fresh)):
                for name in names:
                    _send(app, producer, ScoreShard(run_id=run_id, shard=name), queue, priority)
        total += len(due)
        if not due.more:  # do not wait until no shard is due: in a busy fleet that may never happen
            return total


def queue_lost_shards(ledger: Ledger, run_id: str, *, resend_seconds: float) -> int:
    """Queue shards again if their message is older than `resend_seconds` and no longer in the queue. Returns how many.

    Such a message was popped by a worker that died at that moment, or was lost with Redis. A message that a worker holds
    while its model loads looks the same; then the claim refuses the second one. May run twice.
    """
    overdue = ledger.sent_before(run_id, seconds=resend_seconds)
    if not overdue:
        return 0
    waiting = set(shards_in_queue(ledger.redis, ledger.spec(run_id).queue, run_id))
    return ledger.queue_again(run_id, [name for name in overdue if name not in waiting], seconds=resend_seconds)


def send_finalize(app: Celery, run_id: str) -> None:
    """Ask the finalizer to check a run."""
    app.send_task(
        FINALIZE_RUN,
        kwargs=FinalizeRun(run_id=run_id).model_dump(),
        task_id=f"{run_id}:finalize:{uuid4().hex[:8]}",
        queue=FINALIZE_QUEUE,
    )


def _send(app: Celery, producer: Producer, message: ScoreShard, queue: str, priority: int) -> None:
    app.send_task(
        SCORE_SHARD,
        kwargs=message.model_dump(),
        task_id=f"{message.run_id}:{message.shard}:{uuid4().hex[:8]}",  # readable in Flower, and unique for each send
        queue=queue,
        priority=priority,
        producer=producer,
    )
