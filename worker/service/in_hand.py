"""The shards that a child has in hand: one that is scored and, beside it, one that is stored.

Knows neither Redis nor Celery.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from worker.service import ipc

_STORED_LATER = "its rows are scored, and its files are stored beside the next shard"


class Hold:
    """One shard in hand."""

    def __init__(self) -> None:
        # Set when the device has, or will soon have, all of the shard, and when it has ended.
        self.may_begin_next = threading.Event()
        self.give_back: Callable[[], None] | None = None  # called if the process ends in its midst


class InHand:
    """Begins a shard when the device has, or will soon have, all of the one before. There are two at most."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Hold] = {}  # by run and shard
        self._changing = threading.Lock()
        self._threads = ThreadPoolExecutor(2, "shard")
        self._latest: Future[str] | None = None
        self._exit_code: int | None = None

    def has(self, run_id: str, shard: str) -> bool:
        return (run_id, shard) in self._held

    def begin(self, run_id: str, shard: str, work: Callable[[Hold], str]) -> str:
        """Work on a shard in a thread. Returns when the next one may be begun, and the shard before is done.

        Returns a sentence for Flower, and raises what the work has raised by then.
        """
        before, hold = self._latest, Hold()
        self._latest = latest = self._threads.submit(self._reported, run_id, shard, hold, work)
        latest.add_done_callback(lambda _: hold.may_begin_next.set())
        hold.may_begin_next.wait()
        wait([before] if before else [])
        return latest.result() if latest.done() else _STORED_LATER

    def drain(self) -> None:
        """Wait until nothing is in hand, if no further shard is begun."""
        wait([self._latest] if self._latest else [])

    def exit_when_drained(self, code: int) -> None:
        """End this process with that code after its last shard."""
        self._exit_code = code

    def give_back(self) -> None:
        """Give back what is in hand, while other threads still work on it."""
        for hold in list(self._held.values()):
            if hold.give_back:
                hold.give_back()
        ipc.leave_held([])

    def _reported(self, run_id: str, shard: str, hold: Hold, work: Callable[[Hold], str]) -> str:
        """Do the work, and tell the parent what is in hand: it queues the shards of a child that dies."""
        with self._change():
            self._held[run_id, shard] = hold
        try:
            return work(hold)
        finally:
            with self._change():
                del self._held[run_id, shard]
                if self._exit_code is not None and not self._held:
                    os._exit(self._exit_code)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._changing:
            yield
            ipc.leave_held(list(self._held))
