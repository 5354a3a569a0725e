"""Work on up to two shards at a time in a child: while one is scored, the previous one is finished and stored.

Knows neither Redis nor Celery.
"""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from shardsift.fleet.errors import ShardsiftError
from shardsift.worker.service import ipc

_STORED_LATER = "the rest of it is done beside the next shard"
logger = logging.getLogger(__name__)


class ShardWork(Protocol):
    def run(self, may_begin_next: threading.Event) -> str:
        """Do the work. Sets the event when the next shard may begin. Returns a line for Flower to show."""

    def give_back(self) -> None:
        """Give the shard back. For use while another thread is in `run`."""


class InHand:
    """Works on shards in threads, at most two at a time.

    The next shard may begin when all windows of the one before are on the device, or will be there within seconds.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], ShardWork] = {}  # by run and shard
        self._changing = threading.Lock()
        self._threads = ThreadPoolExecutor(2, "shard")
        self._latest: threading.Event | None = None  # set when the latest shard is done
        self._exit_code: int | None = None

    def has(self, run_id: str, shard: str) -> bool:
        return (run_id, shard) in self._held

    def begin(self, run_id: str, shard: str, work: ShardWork) -> str:
        """Work on a shard in a thread. Returns a sentence for Flower.

        Waits until this shard is done, or until the next shard may begin beside it. In the second case, also waits
        until the shard before this one is done, so that two are in hand at most. Raises the work's error if it has
        failed by then.
        """
        may_begin_next, is_done = threading.Event(), threading.Event()
        working = self._threads.submit(self._reported, run_id, shard, may_begin_next, work)
        working.add_done_callback(lambda _: is_done.set())
        working.add_done_callback(lambda _: may_begin_next.set())
        may_begin_next.wait()
        if not working.done():
            self.drain()
            self._latest = is_done  # not the future, whose error would keep the shard in memory
        return working.result() if working.done() else _STORED_LATER

    def drain(self) -> None:
        """Wait until the latest shard is done."""
        if self._latest:
            self._latest.wait()

    def exit_when_drained(self, code: int) -> None:
        self._exit_code = code

    def give_back(self) -> None:
        """Give back all shards in hand, while other threads still work on them. Never raises."""
        for work in list(self._held.values()):
            try:
                work.give_back()
            except Exception:
                logger.exception("A shard was not given back")
        ipc.leave_held([])

    @property
    def has_one(self) -> bool:
        return len(self._held) == 1

    def _reported(self, run_id: str, shard: str, may_begin_next: threading.Event, work: ShardWork) -> str:
        """Do the work. Reports the shards in hand to the parent, which queues them again if this process dies."""
        with self._changing:
            self._held[run_id, shard] = work
            ipc.leave_held(list(self._held))
        try:
            return work.run(may_begin_next)
        except ShardsiftError:
            raise  # already recorded and logged
        except Exception:
            if may_begin_next.is_set():  # otherwise the task raises it, and Celery logs it
                logger.exception("Shard %s of %s met an unexpected error", shard, run_id)
            raise
        finally:
            with self._changing:
                del self._held[run_id, shard]
                ipc.leave_held(list(self._held))
                if self._exit_code is not None and not self._held:
                    os._exit(self._exit_code)
