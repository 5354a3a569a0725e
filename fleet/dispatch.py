"""From the ledger to the broker: send a message for every shard that is due one.

Used wherever shards become due: by enqueue and retry, by a worker that gives a shard back, and by the finalizer's sweep.
Dying between the ledger and the broker loses a message, not a shard: it is sent again by a later sweep.
"""

from uuid import uuid4

from celery import Celery

from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN, SCORE_SHARD, FinalizeRun, ScoreShard


def send_due_shards(app: Celery, ledger: Ledger, run_id: str, *, resend_seconds: float) -> int:
    """Send all due shards of a run to its scorer's queue; returns how many. May run twice, in many places at once."""
    queue = ledger.spec(run_id).queue
    total = 0
    while names := ledger.take_due(run_id, queue_is_empty=ledger.redis.llen(queue) == 0, resend_seconds=resend_seconds):
        with app.producer_or_acquire() as producer:
            for name in names:
                app.send_task(
                    SCORE_SHARD,
                    kwargs=ScoreShard(run_id=run_id, shard=name).model_dump(),
                    task_id=f"{run_id}:{name}:{uuid4().hex[:8]}",  # readable in Flower; a task sent twice is two tasks
                    queue=queue,
                    producer=producer,
                )
        total += len(names)
    return total


def send_finalize(app: Celery, run_id: str) -> None:
    """Ask the finalizer to look at a run."""
    app.send_task(
        FINALIZE_RUN,
        kwargs=FinalizeRun(run_id=run_id).model_dump(),
        task_id=f"{run_id}:finalize:{uuid4().hex[:8]}",
        queue=FINALIZE_QUEUE,
    )
