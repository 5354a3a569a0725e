"""Reads that many browsers share. Flower has one thread for all of them, so reading happens in other threads."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_MOST_KEPT = 64


@dataclass(kw_only=True)
class _Read(Generic[T]):
    answer: asyncio.Future[T]
    ended_at: float | None = None


class SharedReads(Generic[T]):
    """However many ask for a key, it is read by one thread at a time, and again only `seconds` after the last read ended.

    An error is shared as well, so a server that does not answer is asked as rarely. Used by the thread of the event loop only.
    """

    def __init__(self, executor: Executor, *, seconds: float) -> None:
        self._executor, self._seconds = executor, seconds
        self._reads: dict[Hashable, _Read[T]] = {}

    async def get(self, key: Hashable, read: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        found = self._reads.get(key)
        if found is None or (found.ended_at is not None and loop.time() - found.ended_at >= self._seconds):
            found = self._begin(loop, read)
            self._reads.pop(key, None)
            self._reads[key] = found  # as the newest
            for oldest in list(self._reads)[:-_MOST_KEPT]:
                del self._reads[oldest]
        return await found.answer

    def _begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[], T]) -> _Read[T]:
        begun = _Read(answer=loop.run_in_executor(self._executor, read))

        def note_end(_: asyncio.Future[T]) -> None:
            begun.ended_at = loop.time()

        begun.answer.add_done_callback(note_end)
        return begun
