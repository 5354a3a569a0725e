"""One attempt at a claim: do its work, record in the ledger how it ended, and send the messages that follow."""

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NoReturn, Protocol

import redis
from celery import Task
from kombu.exceptions import OperationalError

from fleet.broker import log_skipped_step
from fleet.dispatch import send_due_shards
from fleet.errors import LeaseLost, RunUnknown, ShardError, ShardsiftError, Stopped, TransientError
from fleet.ledger import Claim, Ledger
from fleet.ledger.kinds import S
from worker.scoring import DeviceFault
from worker.service.child import Child
from worker.service.ipc import EXIT_DEVICE_FAULT
from worker.service.waiting import wait_for_redis

_ELSEWHERE_SECONDS = 60.0  # in which another machine may take a shard that this one cannot work on
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Done:
    """Work whose result is recorded. `line` is for Flower, `logged` for the log, with `fields`."""

    line: str
    logged: str
    fields: Mapping[str, object] = field(default_factory=dict)


class Work(Protocol):
    """What an attempt does under its lease."""

    def do(self) -> Done:
        """Do it and record the result. May raise any error; Stopped and LeaseLost are none."""

    def on_unrecorded(self, unknown: RunUnknown) -> str:
        """Redis has lost the entry while the work was done. Returns what became of the result."""

    def end(self, outcome: str, error: Exception | None = None) -> None:
        """`outcome` is done, stopped, lost, unrecorded or failed. `error` is why it failed."""

    def close(self) -> None:
        """The attempt is over. Called once, and before the process is replaced."""


@dataclass(frozen=True, kw_only=True)
class Attempt(Generic[S]):
    """A claim, and what it takes to work on it."""

    claim: Claim[S]
    ledger: Ledger[S]
    child: Child
    task: Task
    work: Work

    def run(self) -> str:
        """Do the work. Returns a sentence for Flower. Raises the error that failed it, after recording it."""
        try:
            with self.child.holding(self.claim, give_back=self._give_back):
                outcome = self._outcome()
        finally:
            self.work.close()
        self._send_due()
        return outcome

    def _outcome(self) -> str:
        try:
            done = self.work.do()
        except Stopped as stop:
            logger.warning("%s", stop, extra=self.claim.log_fields)
            # Waits for Redis even while stopping: a claim that is not released counts as a crash. `Child.end_now` ends
            # the process in time.
            wait_for_redis(lambda: self.ledger.release(self.claim), threading.Event())
            self.work.end("stopped")
            self._send_due()
            return str(stop)
        except LeaseLost as lost:
            logger.warning("%s", lost, extra=self.claim.log_fields)
            self._give_back()  # does nothing if another attempt has the shard
            self.work.end("lost")
            return str(lost)
        except RunUnknown as unknown:
            logger.warning("%s %s", self.work.on_unrecorded(unknown), unknown, extra=self.claim.log_fields)
            self.work.end("unrecorded")
            return str(unknown)
        except DeviceFault as fault:
            self._record_failure(fault)
            self._replace_process()
        except Exception as error:
            self._record_failure(error)
            raise _as_ours(error) from error  # a MemoryError itself would end Celery's parent process
        self.work.end("done")
        logger.info("%s: %s", self.claim.what_in_full, done.logged, extra={**self.claim.log_fields, **done.fields})
        return done.line

    def _record_failure(self, error: Exception) -> None:
        """Transient errors are retried with a growing delay, those of the machine elsewhere. Unexpected ones count as crashes."""
        claim, trace = self.claim, traceback.format_exc()
        ours, what, fields = _as_ours(error), claim.what_in_full, claim.log_fields
        with redis_may_be_away():
            if isinstance(ours, (ShardError, TransientError)) and ours.of_machine:
                logger.error(
                    "%s is left to other machines, as is its run for ten minutes: %s", what, ours, extra=fields
                )
                self.child.avoided.add(claim.run_id)
                self.ledger.retry_later(claim, str(ours), trace, after_seconds=_ELSEWHERE_SECONDS)
            elif isinstance(ours, ShardError):
                logger.error("%s failed: %s", what, ours, extra=fields)
                self.ledger.fail(claim, str(ours), trace)
            elif isinstance(ours, TransientError):
                logger.warning("%s will be retried: %s", what, ours, extra=fields)
                self.ledger.retry_later(claim, str(ours), trace, after_seconds=ours.retry_after_seconds)
            else:
                logger.error("%s met an unexpected error: %s", what, ours, extra=fields)
                self.ledger.record_crash(claim, str(ours), trace)
        self.work.end("failed", ours)

    def _replace_process(self) -> NoReturn:
        """A process cannot use its device again after a fault. Celery starts another one, which loads the model again."""
        logger.error("The device failed. A new process replaces this one.", extra=self.claim.log_fields)
        self._send_due()
        self.work.close()
        self.child.traces.close()
        os._exit(EXIT_DEVICE_FAULT)

    def _give_back(self) -> None:
        with redis_may_be_away():
            self.ledger.release(self.claim)
            self._send_due()

    def _send_due(self) -> None:
        """The message of this shard has left the queue, so there is room for others."""
        with redis_may_be_away():
            send_due_shards(self.task.app, self.ledger, self.claim.run_id)


def progress_of(task: Task) -> Callable[[str], None]:
    """Show a line in Flower about the current task, from any thread. It is the `result` of an event."""
    app, task_id, hostname = task.app, task.request.id, task.request.hostname  # other threads have no request

    def show(line: str) -> None:
        with redis_may_be_away(), app.events.default_dispatcher(hostname=hostname) as dispatcher:
            dispatcher.send("task-progress", uuid=task_id, result=line, retry=False)

    return show


@contextmanager
def redis_may_be_away() -> Iterator[None]:
    """Skip the block if Redis fails. The end of the lease or the finalizer's sweep then does what it left undone."""
    try:
        yield
    except (redis.RedisError, OperationalError, ShardsiftError) as error:
        log_skipped_step(logger, error)


def _as_ours(error: Exception) -> ShardsiftError:
    if isinstance(error, ShardsiftError):
        return error
    if isinstance(error, MemoryError):
        return TransientError(f"No memory left: {error}")
    if isinstance(error, redis.RedisError):
        return TransientError(f"Redis failed: {error}")
    return ShardsiftError(f"{type(error).__name__}: {error}")
