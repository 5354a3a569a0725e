"""Do the next step's work while this one's is under way, in threads that end with their context."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

Item = TypeVar("Item")
Args = ParamSpec("Args")


@contextmanager
def prefetched(items: Iterable[Item], name: str) -> Iterator[Iterator[Item]]:
    """The same items, each made by a thread while the one before is used: one item ahead, no more."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:

        def made() -> Iterator[Item]:
            pending = thread.submit(next, source, end)
            while (item := pending.result()) is not end:
                pending = thread.submit(next, source, end)
                yield item  # type: ignore[misc]  # not the end

        yield made()


@contextmanager
def in_background(action: Callable[Args, None], name: str) -> Iterator[Callable[Args, None]]:
    """The same calls in the same order, each made by a thread while the caller goes on: one call behind, no more.

    What a call raises, the next call or the end of the context raises.
    """
    with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:
        under_way: list[Future[None]] = []

        def finish() -> None:
            while under_way:
                under_way.pop().result()

        def call(*args: Args.args, **kwargs: Args.kwargs) -> None:
            finish()
            under_way.append(thread.submit(action, *args, **kwargs))

        yield call
        finish()
