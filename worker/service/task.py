"""The task: claim a shard, score it, and tell the ledger how it went. A message that comes twice finds the claim taken."""

import logging
import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import redis
from celery import Task
from celery.exceptions import Reject
from kombu.exceptions import OperationalError
from pydantic import ValidationError

from fleet.broker import LATER
from fleet.counted import counted
from fleet.dispatch import send_due_shards, send_finalize
from fleet.errors import LeaseLost, NewerVersion, RunUnknown, ShardError, ShardsiftError, Stopped, TransientError
from fleet.ledger import Claim, Refusal, new_nonce
from fleet.message import NEWER, NOT_OURS, SCORE_SHARD, ScoreShard
from fleet.receipt import Receipt
from fleet.storage.opening import open_output
from worker.app import app
from worker.scoring import DeviceFault
from worker.service.checkpoint_store import open_checkpoint
from worker.service.child import Child
from worker.service.ipc import EXIT_DEVICE_FAULT, owner_name
from worker.service.lease import Lease
from worker.service.waiting import wait_for_redis
from worker.shard.score_shard import score_shard

_NEWER_PAUSE_SECONDS = 2.0  # so that a message which only others understand does not come straight back
logger = logging.getLogger(__name__)


@app.task(bind=True, name=SCORE_SHARD)
def score_shard_task(self: Task, *by_place: object, **fields: object) -> str:
    """Score one shard. Returns a sentence for Flower; raises what made the shard fail, for its traceback."""
    child: Child = app.child
    child.install_signal_handlers()
    try:
        message = ScoreShard.understood({**fields, **{str(place): value for place, value in enumerate(by_place)}})
    except NewerVersion as newer:
        return _leave_to_others(child, self, fields, newer)
    except ValidationError as error:
        logger.warning("Refused a message that is not one of ours: %s", error)
        _count_refused(child, NOT_OURS)
        raise
    worker = owner_name(self.request.hostname, os.getppid())
    try:
        if child.stopping.is_set():
            raise Stopped("The worker is stopping.")
        nonce = new_nonce()
        claim = wait_for_redis(
            lambda: child.ledger.claim(message.run_id, message.shard, owner=worker, nonce=nonce), child.stopping
        )
    except Stopped as stop:
        raise Reject(str(stop), requeue=True) from stop
    if isinstance(claim, Refusal):
        return f"nothing to do: {claim}"
    with child.holding(claim, give_back=lambda claim: _give_back(child, claim)):
        outcome = _work_on(claim, child, self, worker)
    _send_due(child, claim)
    return outcome


def _leave_to_others(child: Child, task: Task, fields: dict[str, object], newer: NewerVersion) -> str:
    """Behind all other messages: put back where it was, one of high priority would come again before all of them."""
    logger.warning("Left to others: %s", newer)
    _count_refused(child, NEWER)
    child.stopping.wait(_NEWER_PAUSE_SECONDS)
    queue = task.request.delivery_info["routing_key"]
    with _redis_may_be_away():
        app.send_task(SCORE_SHARD, kwargs=fields, task_id=task.request.id, queue=queue, priority=LATER)
    return str(newer)


def _work_on(claim: Claim, child: Child, task: Task, worker: str) -> str:
    try:
        receipt, still_open = _scored_and_recorded(claim, child, task, worker)
    except Stopped as stop:
        logger.warning("%s", stop)
        wait_for_redis(
            lambda: child.ledger.release(claim), threading.Event()
        )  # until `Child.end_now`: else it is a crash
        _send_due(child, claim)
        return str(stop)
    except LeaseLost as lost:
        logger.warning("%s", lost)
        _give_back(child, claim)  # does nothing where another attempt has the shard
        return str(lost)
    except RunUnknown as lost:
        logger.warning("Shard %s is scored, and its receipt kept with the output. %s", claim.shard.name, lost)
        return str(lost)
    except DeviceFault as fault:
        _record_failure(child, claim, fault)
        _replace_process(child, claim)
    except Exception as error:
        _record_failure(child, claim, error)
        raise _as_ours(error) from error  # a MemoryError as such would end Celery's parent process
    logger.info(
        "Shard %s of %s: %s in, %d kept, %d errored",
        claim.shard.name,
        claim.run_id,
        counted(receipt.rows_in, "row"),
        receipt.rows_kept,
        receipt.rows_errored,
    )
    if not still_open:
        with _redis_may_be_away():
            send_finalize(app, claim.run_id)
    return f"{counted(receipt.rows_in, 'row')} in, {receipt.rows_kept:,} kept, {receipt.rows_errored:,} errored"


def _scored_and_recorded(claim: Claim, child: Child, task: Task, worker: str) -> tuple[Receipt, int]:
    """The receipt, and how many shards of the run are still open."""
    output = open_output(claim.spec.output_uri, claim.run_id)
    lease = Lease(
        child.ledger,
        claim,
        stopping=child.stopping,
        report=lambda line: _show_progress(task, line),
        report_seconds=child.settings.progress_seconds,
        watchdog=child.watchdog,
    )
    with lease:
        with open_checkpoint(claim, child.ledger, output, child.stopping) as checkpoint:
            scratch_dir = child.settings.scratch_dir
            receipt = score_shard(
                claim, [child.scorer], lease, checkpoint, output, worker=worker, scratch_dir=scratch_dir
            )
        try:
            still_open = wait_for_redis(lambda: child.ledger.complete(claim, receipt), child.stopping)
        except LeaseLost:
            if child.ledger.is_done(claim):  # else ours may be the only one, and `enqueue` be about to take it over
                output.discard(receipt)
            raise
    if claim.spilled:
        output.drop_checkpoints(claim.shard.name)
    return receipt, still_open


def _record_failure(child: Child, claim: Claim, error: Exception) -> None:
    """Errors that may pass are tried again later and later; what nobody foresaw counts as a crash."""
    name, trace = claim.shard.name, traceback.format_exc()
    ours = _as_ours(error)
    with _redis_may_be_away():
        if isinstance(ours, ShardError):
            logger.error("Shard %s of %s failed: %s", name, claim.run_id, ours)
            child.ledger.fail(claim, str(ours), trace)
        elif isinstance(ours, TransientError):
            logger.warning("Shard %s of %s will be tried again: %s", name, claim.run_id, ours)
            child.ledger.retry_later(claim, str(ours), trace, after_seconds=ours.retry_after_seconds)
        else:
            logger.error("Shard %s of %s met what nobody foresaw: %s", name, claim.run_id, ours)
            child.ledger.record_crash(claim, str(ours), trace)


def _as_ours(error: Exception) -> ShardsiftError:
    if isinstance(error, ShardsiftError):
        return error
    if isinstance(error, MemoryError):
        return TransientError(f"No memory left: {error}")
    if isinstance(error, redis.RedisError):
        return TransientError(f"Redis failed: {error}")
    return ShardsiftError(f"{type(error).__name__}: {error}")


def _replace_process(child: Child, claim: Claim) -> NoReturn:
    """After a fault of the device its process is worth nothing: Celery starts another, which must load the model anew."""
    logger.error("The device failed; this process is replaced")
    _send_due(child, claim)
    os._exit(EXIT_DEVICE_FAULT)


def _give_back(child: Child, claim: Claim) -> None:
    with _redis_may_be_away():
        child.ledger.release(claim)
        _send_due(child, claim)


def _send_due(child: Child, claim: Claim) -> None:
    """This shard's message is used up: others may follow it into the queue."""
    with _redis_may_be_away():
        send_due_shards(app, child.ledger, claim.run_id)


def _count_refused(child: Child, what: str) -> None:
    with _redis_may_be_away():
        child.ledger.count_refused(what)


@contextmanager
def _redis_may_be_away() -> Iterator[None]:
    """What is not done here, the end of the lease and the finalizer's sweep put right."""
    try:
        yield
    except (redis.RedisError, OperationalError, ShardsiftError) as error:
        logger.warning("Left to the sweep: %s", error)


def _show_progress(task: Task, line: str) -> None:
    """Flower shows the `result` of this event while the task runs."""
    with _redis_may_be_away():
        task.send_event("task-progress", result=line)
