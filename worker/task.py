"""The task: claim a shard, score it, and tell the ledger how it went. A message that comes twice finds the claim taken."""

import logging
import os
import traceback

import redis
from celery import Task
from celery.exceptions import Reject
from pydantic import ValidationError

from fleet.dispatch import send_due_shards, send_finalize
from fleet.errors import LeaseLost, ShardError, ShardsiftError, Stopped, TransientError
from fleet.ledger import Claim, Refusal
from fleet.message import SCORE_SHARD, ScoreShard
from worker.app import app
from worker.child import Child
from worker.lease import Lease
from worker.shard import score_shard

logger = logging.getLogger(__name__)


@app.task(bind=True, name=SCORE_SHARD)
def score_shard_task(self: Task, **fields: object) -> str:
    """Score one shard. Returns a sentence for Flower; raises what made the shard fail, for its traceback."""
    child: Child = app.child
    try:
        message = ScoreShard.model_validate(fields)
    except ValidationError as error:
        logger.warning("Refused a message that is not one of ours: %s", error)
        raise
    if child.stopping.is_set():
        raise Reject("the worker is stopping", requeue=True)
    worker = f"{self.request.hostname}/{os.getppid()}"  # the same for every child of this worker, and for no other
    claim = child.ledger.claim(message.run_id, message.shard, owner=worker)
    if isinstance(claim, Refusal):
        return f"nothing to do: {claim}"
    return _work_on(claim, child, self, worker)


def _work_on(claim: Claim, child: Child, task: Task, worker: str) -> str:
    lease = Lease(
        child.ledger,
        claim,
        stopping=child.stopping,
        report=lambda line: _show_progress(task, line),
        report_seconds=child.settings.progress_seconds,
    )
    name = claim.shard.name
    try:
        with lease:
            receipt = score_shard(claim, child.scorer, lease, worker=worker, scratch_dir=child.settings.scratch_dir)
            still_open = child.ledger.complete(claim, receipt)
    except (Stopped, LeaseLost) as end:
        logger.warning("%s", end)
        child.ledger.release(claim)  # does nothing where another attempt has the shard
        send_due_shards(app, child.ledger, claim.run_id, resend_seconds=child.settings.resend_seconds)
        return str(end)
    except redis.RedisError:
        raise  # the lease runs out and the shard is taken up again; there is no ledger to tell
    except Exception as error:
        ours = _as_ours(error)
        _record_failure(child, claim, ours)
        raise ours from error  # a MemoryError as such would end Celery's parent process
    logger.info(
        "Shard %s of %s: %d rows in, %d kept, %d errored",
        name,
        claim.run_id,
        receipt.rows_in,
        receipt.rows_kept,
        receipt.rows_errored,
    )
    if not still_open:
        send_finalize(app, claim.run_id)
    return f"{receipt.rows_in:,} rows in, {receipt.rows_kept:,} kept, {receipt.rows_errored:,} errored"


def _record_failure(child: Child, claim: Claim, error: ShardsiftError) -> None:
    trace = traceback.format_exc()
    if isinstance(error, TransientError):
        logger.warning("Shard %s of %s will be tried again: %s", claim.shard.name, claim.run_id, error)
        child.ledger.retry_later(claim, str(error), trace)
    else:
        logger.error("Shard %s of %s failed: %s", claim.shard.name, claim.run_id, error)
        child.ledger.fail(claim, str(error), trace)


def _as_ours(error: Exception) -> ShardsiftError:
    if isinstance(error, (ShardError, TransientError)):
        return error
    return TransientError(f"{type(error).__name__}: {error}")


def _show_progress(task: Task, line: str) -> None:
    """Flower shows the `result` of this event while the task runs."""
    task.send_event("task-progress", result=line)
