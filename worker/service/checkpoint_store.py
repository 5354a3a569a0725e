"""Store checkpoints in the ledger or, if that has no room, with the output.

Works in a thread, so that a slow or missing Redis does not delay the scoring.
"""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis

from shardsift.fleet.errors import LeaseLost, ShardsiftError
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.process.redis_away import ABOUT_REDIS, as_ours, wait_for_redis
from shardsift.fleet.process.wording import counted
from shardsift.fleet.storage.output import Output
from shardsift.worker.shard.checkpoint import Checkpoint

logger = logging.getLogger(__name__)


@contextmanager
def open_checkpoint(claim: Claim, ledger: Ledger, output: Output, stopping: threading.Event) -> Iterator[Checkpoint]:
    """Open the checkpoint of a claimed shard. On exit, waits until its finished windows are stored.

    If a window cannot be stored, this is only logged, and a later attempt scores the window again.

    On entry, waits while Redis does not answer, and raises Stopped if the worker stops meanwhile. Raises TransientError
    if the part of the checkpoint that is stored with the output cannot be read.
    """
    found = wait_for_redis(lambda: ledger.saved_scores(claim), stopping)
    if claim.spilled:
        found |= {int(name): content for name, content in output.checkpoints(claim.shard.name).items()}
    if found:
        windows = counted(len(found), "window")
        logger.info("Shard %s is resumed: %s scored before", claim.shard.name, windows, extra=claim.log_fields)
    store = _Store(claim, ledger, output)
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:
        yield Checkpoint(found, lambda first_row, content: store.add(first_row, content, thread))


class _Store:
    """Stores the scores of windows. If Redis does not answer, tries again when the next window is finished."""

    def __init__(self, claim: Claim, ledger: Ledger, output: Output) -> None:
        self._claim, self._ledger, self._output = claim, ledger, output
        self._pending: dict[int, bytes] = {}

    def add(self, first_row: int, content: bytes, thread: ThreadPoolExecutor) -> None:
        self._pending[first_row] = content
        thread.submit(self._save_all)

    def _save_all(self) -> None:
        for first_row, content in list(self._pending.items()):
            try:
                self._save(first_row, content)
            except redis.RedisError as error:
                what, fields = self._claim.shard.name, self._claim.log_fields | ABOUT_REDIS
                logger.warning("%s Scores of %s are stored later.", as_ours(error), what, extra=fields)
                return
            except LeaseLost:
                return  # the thread that renews the lease reports it
            except ShardsiftError as error:
                what, fields = self._claim.shard.name, self._claim.log_fields
                logger.warning("A checkpoint of %s could not be stored: %s", what, error, extra=fields)
            del self._pending[first_row]

    def _save(self, first_row: int, content: bytes) -> None:
        if not self._ledger.save_scores(self._claim, first_row, content):
            self._output.store_checkpoint(self._claim.shard.name, str(first_row), content)
