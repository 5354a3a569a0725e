"""One attempt at a shard: score it under a lease, record how it ended in the ledger, and send the messages that follow."""

import logging
import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import redis
from celery import Task
from kombu.exceptions import OperationalError

from fleet.broker import about_redis
from fleet.counted import counted
from fleet.dispatch import send_due_shards, send_finalize
from fleet.errors import LeaseLost, RunUnknown, ShardError, ShardsiftError, Stopped, TransientError
from fleet.ledger import Claim
from fleet.receipt import Receipt
from fleet.storage.opening import open_output
from worker.scoring import DeviceFault
from worker.service.checkpoint_store import open_checkpoint
from worker.service.child import Child
from worker.service.device_meter import DeviceMeter
from worker.service.ipc import EXIT_DEVICE_FAULT
from worker.service.lease import Lease
from worker.service.steps import Steps
from worker.service.waiting import wait_for_redis
from worker.shard.score_shard import score_shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A claim, and what it takes to work on it. `worker` is the owner of the claim."""

    claim: Claim
    child: Child
    task: Task
    worker: str
    steps: Steps

    def run(self) -> str:
        """Score the shard. Returns a sentence for Flower. Raises the error that failed the shard, after recording it."""
        try:
            with self.child.holding(self.claim, give_back=self._give_back):
                outcome = self._outcome()
        finally:
            self._send_trace()
        self._send_due()
        return outcome

    def _outcome(self) -> str:
        try:
            receipt, still_open = self._score_and_record()
        except Stopped as stop:
            logger.warning("%s", stop, extra=self.claim.log_fields)
            # Waits for Redis even while stopping: a claim that is not released counts as a crash. `Child.end_now` ends
            # the process in time.
            wait_for_redis(lambda: self.child.ledger.release(self.claim), threading.Event())
            self.steps.end("stopped")
            self._send_due()
            return str(stop)
        except LeaseLost as lost:
            logger.warning("%s", lost, extra=self.claim.log_fields)
            self._give_back()  # does nothing if another attempt has the shard
            self.steps.end("lost")
            return str(lost)
        except RunUnknown as unknown:
            logger.warning(
                "Shard %s is scored, and its receipt is stored with the output. %s",
                self.claim.shard.name,
                unknown,
                extra=self.claim.log_fields,
            )
            self.steps.end("unrecorded")
            return str(unknown)
        except DeviceFault as fault:
            self._record_failure(fault)
            self._replace_process()
        except Exception as error:
            self._record_failure(error)
            raise _as_ours(error) from error  # a MemoryError itself would end Celery's parent process
        self.steps.end("done")
        self._log_done(receipt)
        if not still_open:
            with redis_may_be_away():
                send_finalize(self.task.app, self.claim.run_id)
        return f"{counted(receipt.rows_in, 'row')} in, {receipt.rows_kept:,} kept, {receipt.rows_errored:,} errored"

    def _log_done(self, receipt: Receipt) -> None:
        seconds = receipt.provenance.finished_at - receipt.provenance.started_at
        logger.info(
            "Shard %s of %s: %s in, %d kept, %d errored",
            self.claim.shard.name,
            self.claim.run_id,
            counted(receipt.rows_in, "row"),
            receipt.rows_kept,
            receipt.rows_errored,
            extra=self.claim.log_fields | {"rows": receipt.rows_in, "seconds": round(seconds, 1)},
        )

    def _score_and_record(self) -> tuple[Receipt, int]:
        """The receipt, and how many shards of the run are still open."""
        child, claim = self.child, self.claim
        output = open_output(claim.spec.output_uri, claim.run_id)
        scorers = child.scorers_of(claim.spec)
        lease = Lease(
            child.ledger,
            claim,
            device=DeviceMeter(scorers[0].info.device, scorers),
            stopping=child.stopping,
            report=self._show_progress,
            report_seconds=child.settings.progress_seconds,
            watchdog=child.watchdog,
        )
        with lease:
            with (
                self.steps.of_work(lease.vitals),
                open_checkpoint(claim, child.ledger, output, child.stopping) as checkpoint,
            ):
                scratch_dir = child.settings.scratch_dir
                receipt = score_shard(
                    claim,
                    scorers,
                    lease,
                    checkpoint,
                    output,
                    worker=self.worker,
                    scratch_dir=scratch_dir,
                )
            try:
                still_open = wait_for_redis(lambda: child.ledger.complete(claim, receipt), child.stopping)
            except LeaseLost:
                if child.ledger.is_done(claim):  # if it is not, this receipt may be the only one: `enqueue` may use it
                    output.discard(receipt)
                raise
        if claim.spilled:
            output.drop_checkpoints(claim.shard.name)
        return receipt, still_open

    def _record_failure(self, error: Exception) -> None:
        """Transient errors are retried with a growing delay. Unexpected errors count as crashes."""
        claim, trace = self.claim, traceback.format_exc()
        ours, name, fields = _as_ours(error), claim.shard.name, claim.log_fields
        with redis_may_be_away():
            if isinstance(ours, ShardError):
                logger.error("Shard %s of %s failed: %s", name, claim.run_id, ours, extra=fields)
                self.child.ledger.fail(claim, str(ours), trace)
            elif isinstance(ours, TransientError):
                logger.warning("Shard %s of %s will be retried: %s", name, claim.run_id, ours, extra=fields)
                self.child.ledger.retry_later(claim, str(ours), trace, after_seconds=ours.retry_after_seconds)
            else:
                logger.error("Shard %s of %s met an unexpected error: %s", name, claim.run_id, ours, extra=fields)
                self.child.ledger.record_crash(claim, str(ours), trace)
        self.steps.end("failed", ours)

    def _replace_process(self) -> NoReturn:
        """A process cannot use its device again after a fault. Celery starts another one, which loads the model again."""
        logger.error("The device failed. A new process replaces this one.", extra=self.claim.log_fields)
        self._send_due()
        self._send_trace()
        self.child.traces.close()
        os._exit(EXIT_DEVICE_FAULT)

    def _send_trace(self) -> None:
        self.child.traces.send(self.claim, self.steps, worker=self.worker)

    def _give_back(self) -> None:
        with redis_may_be_away():
            self.child.ledger.release(self.claim)
            self._send_due()

    def _send_due(self) -> None:
        """The message of this shard has left the queue, so there is room for others."""
        with redis_may_be_away():
            send_due_shards(self.task.app, self.child.ledger, self.claim.run_id)

    def _show_progress(self, line: str) -> None:
        """Flower shows the `result` of this event while the task runs."""
        with redis_may_be_away():
            self.task.send_event("task-progress", result=line)


@contextmanager
def redis_may_be_away() -> Iterator[None]:
    """Skip the block if Redis fails. The end of the lease or the finalizer's sweep then does what it left undone."""
    try:
        yield
    except (redis.RedisError, OperationalError, ShardsiftError) as error:
        logger.warning("Left to the sweep: %s", error, extra=about_redis(error))


def _as_ours(error: Exception) -> ShardsiftError:
    if isinstance(error, ShardsiftError):
        return error
    if isinstance(error, MemoryError):
        return TransientError(f"No memory left: {error}")
    if isinstance(error, redis.RedisError):
        return TransientError(f"Redis failed: {error}")
    return ShardsiftError(f"{type(error).__name__}: {error}")
