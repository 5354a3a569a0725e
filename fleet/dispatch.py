"""From the ledger to the broker: send a message for every shard that is due one, a bounded number ahead of the workers.

Used wherever shards become due or messages were used up: by enqueue and retry, by a worker after each shard, and by the
finalizer's sweep. Dying between the ledger and the broker loses a message, not a shard: it is sent again by a later sweep.
"""

from uuid import uuid4

import redis
from celery import Celery
from kombu.messaging import Producer

from fleet.broker import FIRST, LATER, queue_lists
from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN, SCORE_SHARD, FinalizeRun, ScoreShard

_MESSAGES_AHEAD = (
    2_000  # in a queue: enough for any fleet between two sweeps, and 2 MB of Redis however many shards wait
)


def send_due_shards(app: Celery, ledger: Ledger, run_id: str, *, resend_seconds: float) -> int:
    """Send due shards of a run to its scorer's queue; returns how many. May run twice, in many places at once.

    Shards that were begun before go all and first; fresh ones follow as far as the queue has room.
    """
    queue = ledger.spec(run_id).queue
    total = 0
    while True:
        length = queue_length(ledger.redis, queue)
        room = max(0, _MESSAGES_AHEAD - length)
        due = ledger.take_due(run_id, room=room, queue_is_empty=length == 0, resend_seconds=resend_seconds)
        with app.producer_or_acquire() as producer:
            for priority, names in ((FIRST, due.again), (LATER, due.fresh)):
                for name in names:
                    _send(app, producer, ScoreShard(run_id=run_id, shard=name), queue, priority)
        total += len(due)
        if not due.more:  # and not: none is due, which in a busy fleet would never come
            return total


def queue_length(client: redis.Redis, queue: str) -> int:
    """Messages of a queue that no worker has taken yet."""
    pipeline = client.pipeline()
    for name in queue_lists(queue):
        pipeline.llen(name)
    return sum(pipeline.execute())


def send_finalize(app: Celery, run_id: str) -> None:
    """Ask the finalizer to look at a run."""
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
        task_id=f"{message.run_id}:{message.shard}:{uuid4().hex[:8]}",  # readable in Flower; a task sent twice is two
        queue=queue,
        priority=priority,
        producer=producer,
    )
