"""An attempt at a shard: claim it, score it, record how the attempt ended, and send messages for the next shards."""

import logging
import threading
import traceback

import redis
from celery import Celery
from celery.exceptions import Reject

from shardsift.fleet.dispatch import ScoreShard, top_up
from shardsift.fleet.errors import LeaseLost, RunUnknown, ShardError, ShardsiftError, Stopped, TransientError, lack_of
from shardsift.fleet.ledger import Claim, Refusal, new_nonce
from shardsift.fleet.process.redis_away import as_ours, redis_may_be_away, wait_for_redis
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.open_output import open_output
from shardsift.worker.scoring import DeviceFault
from shardsift.worker.service.checkpoint_store import open_checkpoint
from shardsift.worker.service.child import ScoringChild
from shardsift.worker.service.device_meter import DeviceMeter
from shardsift.worker.service.lease import Lease
from shardsift.worker.shard.score_shard import score_shard

_ELSEWHERE_SECONDS = 60.0  # pause for other machines to take a shard whose storage this one cannot use
logger = logging.getLogger(__name__)


class Attempt:
    """An attempt at the shard that `message` names. `worker` is the owner of the claim."""

    claim: Claim  # set when the ledger has given the shard
    may_begin_next: threading.Event

    def __init__(self, child: ScoringChild, message: ScoreShard, app: Celery, *, worker: str) -> None:
        self.child = child
        self.message = message
        self.app = app
        self.worker = worker
        self._is_claimed = False

    def run(self, may_begin_next: threading.Event) -> str:
        """Claim the shard and score it. Sets the event when the next shard may begin.

        Returns a sentence for Flower to show. An error is recorded, then raised.
        """
        try:
            claim = _claim(self.child, self.message, self.worker)
        except ShardsiftError as error:
            logger.error("Shard %s of %s was not begun: %s", self.message.shard, self.message.run_id, error)
            raise
        if isinstance(claim, Refusal):
            return f"nothing to do: {claim}"
        self.claim, self.may_begin_next, self._is_claimed = claim, may_begin_next, True
        try:
            return self._outcome()
        finally:
            self._top_up()
            self._is_claimed = False

    def _outcome(self) -> str:
        try:
            receipt = self._score_and_record()
        except Stopped as stop:
            logger.warning("%s", stop, extra=self.claim.log_fields)
            # Waits for Redis even while stopping, because a claim that is not released counts as a crash.
            # `ScoringChild.end_now` ends the process in time.
            wait_for_redis(lambda: self.child.ledger.release(self.claim), threading.Event())
            return str(stop)
        except LeaseLost as lost:
            logger.warning("%s", lost, extra=self.claim.log_fields)
            self._release()  # has no effect if another attempt has the shard
            return str(lost)
        except RunUnknown as unknown:
            what = f"{self.claim.what} is scored, and its receipt is stored with the output."
            logger.warning("%s %s", what, unknown, extra=self.claim.log_fields)
            return str(unknown)
        except BaseException as error:  # even SystemExit, because a thread that ends would leave its shard claimed
            self._record_failure(error)
            if isinstance(error, DeviceFault):
                logger.error("A new process replaces this one: %s", error, extra=self.claim.log_fields)
                self.child.replace()
            raise _classified(error) from error  # because a MemoryError would end Celery's parent process
        return self._logged(receipt)

    def _score_and_record(self) -> Receipt:
        child, claim = self.child, self.claim
        output = open_output(claim.spec.output_uri, claim.run_id, state_uri=child.settings.state_uri)
        scorers = [child.scorers[scoring.queue] for scoring in claim.spec.scorings]
        info = scorers[0].info
        device = DeviceMeter(info.device, scorers, backend=info.backend)
        lease = Lease(
            child.ledger,
            claim,
            device=device,
            stopping=child.stopping,
            begin_next=self._begin_next,
            watchdog=child.watchdog,
            pace=child.pace,
        )
        with lease:
            with open_checkpoint(claim, child.ledger, output, child.stopping) as checkpoint:
                scratch = child.settings.scratch_dir
                receipt = score_shard(
                    claim, scorers, lease, checkpoint, output, worker=self.worker, scratch_dir=scratch
                )
            self._record(receipt, lease)
        if claim.spilled:
            output.drop_checkpoints(claim.shard.name)
        return receipt

    def _begin_next(self) -> None:
        """Allow the next shard to begin beside this one, unless this is a retry.

        If another shard ran beside a retry and killed the process, the crash would count against both, and the retried
        shard might fail.
        """
        if self.may_begin_next.is_set() or self.claim.attempt > 1:
            return
        if self.child.in_hand.has_one:  # with two in hand, the worker keeps counting towards the run's limit
            with redis_may_be_away():
                self.child.ledger.leave_device(self.claim)
            self._top_up()
        self.may_begin_next.set()

    def _record(self, receipt: Receipt, lease: Lease) -> None:
        def complete() -> None:
            lease.on_progress()  # so that the watchdog does not end the process while Redis is down
            self.child.ledger.complete(self.claim, receipt)

        wait_for_redis(complete, self.child.stopping)

    def _logged(self, receipt: Receipt) -> str:
        line = f"{counted(receipt.rows_in, 'row')} in, {receipt.rows_kept:,} kept, {receipt.rows_errored:,} errored"
        if rows := sum(scoring.rows_in_float32 for scoring in receipt.scorings):
            line += f"; {counted(rows, 'score')} in float32 instead of float16"
        seconds = receipt.provenance.finished_at - receipt.provenance.started_at
        fields = {"rows": receipt.rows_in, "seconds": round(seconds, 1)}
        logger.info("%s: %s", self.claim.what_in_full, line, extra=self.claim.log_fields | fields)
        return line

    def _record_failure(self, error: BaseException) -> None:
        """Record an error of this attempt in the ledger.

        The type of the error decides: the shard fails, or is retried later, or is left to other machines while this
        worker pauses, or the attempt counts as a crash.
        """
        claim, trace = self.claim, traceback.format_exc()
        ours, what, fields = _classified(error), claim.what_in_full, claim.log_fields
        with redis_may_be_away():
            if isinstance(ours, (ShardError, TransientError)) and ours.of_machine:
                logger.error("%s is left to other machines, and this worker pauses: %s", what, ours, extra=fields)
                self.child.ledger.retry_later(claim, str(ours), trace, after_seconds=_ELSEWHERE_SECONDS)
                # Without a pause, this worker would use up the attempts of one shard after another within seconds.
                self.child.stopping.wait(_ELSEWHERE_SECONDS)
            elif isinstance(ours, ShardError):
                logger.error("%s failed: %s", what, ours, extra=fields)
                self.child.ledger.fail(claim, str(ours), trace)
            elif isinstance(ours, TransientError):
                logger.warning("%s will be retried: %s", what, ours, extra=fields)
                self.child.ledger.retry_later(claim, str(ours), trace, after_seconds=ours.retry_after_seconds)
            else:
                logger.error("%s met an unexpected error: %s", what, ours, exc_info=error, extra=fields)
                self.child.ledger.record_crash(claim, str(ours), trace)

    def give_back(self) -> None:
        """Give the shard back if it is claimed. For use while another thread is in `run`."""
        if self._is_claimed:
            what = self.claim.what
            logger.warning("%s is given back in the middle of a batch or an upload", what, extra=self.claim.log_fields)
            self._release()

    def _release(self) -> None:
        with redis_may_be_away():
            self.child.ledger.release(self.claim)

    def _top_up(self) -> None:
        with redis_may_be_away():
            top_up(self.app, self.child.ledger, self.claim.run_id, self.claim.spec.queue)


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


def _classified(error: BaseException) -> ShardsiftError:
    if isinstance(error, ShardsiftError):
        return error
    if isinstance(error, redis.RedisError):
        return as_ours(error)
    if lack := lack_of(error):
        return TransientError(lack)
    return ShardsiftError(f"{type(error).__name__}: {error}")
