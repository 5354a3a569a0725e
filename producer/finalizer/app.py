"""The finalizer's Celery app: it consumes the finalize queue and runs the sweep in a thread."""

import logging

from celery import Task
from kombu.entity import Queue
from pydantic import ValidationError

from fleet.broker import make_app
from fleet.counted import counted
from fleet.errors import NewerVersion, ShardError, ShardsiftError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN, NEWER, NOT_OURS, FinalizeRun
from fleet.settings import Settings, read_settings
from producer.finalizer.program import FinalizerWorker
from producer.finalizer.publish import NotReady, finalize_run
from producer.finalizer.waves import WaveRule, save_due_waves

logger = logging.getLogger(__name__)

app = make_app(
    "finalizer",
    read_settings(),
    worker_pool="threads",
    worker_concurrency=1,
    task_default_queue=FINALIZE_QUEUE,
    task_queues=[Queue(FINALIZE_QUEUE, routing_key=FINALIZE_QUEUE)],
)
app.Worker = app.subclass_with_self(FinalizerWorker)


@app.task(bind=True, name=FINALIZE_RUN)
def finalize_run_task(self: Task, **fields: object) -> str:
    """Publish a run if it is ready, otherwise save shards that have waited too long. Returns a sentence for Flower.

    Raises the error that prevented publishing, and ValidationError for a message that is not ours.
    """
    settings = read_settings()
    ledger = Ledger.connect(settings)
    try:
        run_id = FinalizeRun.understood(fields).run_id
    except NewerVersion as newer:  # the sweep of a finalizer that understands it sends another one
        ledger.count_refused(NEWER)
        return str(newer)
    except ValidationError:
        ledger.count_refused(NOT_OURS)
        raise
    if not ledger.may_publish(run_id):
        return f"not tried: {ledger.publish_error(run_id)}"
    try:
        outcome = finalize_run(ledger, run_id, without_failed=False)
        saved = _save_waves(ledger, run_id, settings) if isinstance(outcome, NotReady) else 0
        if saved:  # the last shard may have finished meanwhile, and another finalizer may have published and removed the branch
            outcome = finalize_run(ledger, run_id, without_failed=False)
    except Exception as error:
        _record(ledger, run_id, error)
        raise
    if isinstance(outcome, NotReady):
        return f"not published: {outcome.reason}" + (f"; saved {counted(saved, 'shard')}" if saved else "")
    return f"published {counted(outcome.shards, 'shard')} at {outcome.uri} {outcome.commit}".strip()


def _record(ledger: Ledger, run_id: str, error: Exception) -> None:
    """Record an error. One that may go away by itself is tried again; one that a person must fix is not."""
    ledger.record_publish_error(
        run_id,
        str(error) if isinstance(error, ShardsiftError) else f"{type(error).__name__}: {error}",
        is_permanent=isinstance(error, (ShardError, UsageError)),
        retry_after_seconds=error.retry_after_seconds if isinstance(error, TransientError) else None,
    )


def _save_waves(ledger: Ledger, run_id: str, settings: Settings) -> int:
    try:
        return save_due_waves(ledger, run_id, WaveRule.of(settings))
    except TransientError as error:
        logger.warning("%s A later sweep tries again.", error)
        if error.retry_after_seconds:
            _record(ledger, run_id, error)
        return 0
