"""Run steps of a pipeline at the same time, in threads that end with their context."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat, takewhile
from typing import ParamSpec, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
Args = ParamSpec("Args")


@contextmanager
def prefetched(items: Iterable[Item], name: str) -> Iterator[Iterator[Item]]:
    """Yield the same items, but prepare the next one in a thread while the caller uses the current one."""
    source, end = iter(items), object()
    with mapped_ahead(lambda _: next(source, end), repeat(None), name) as found:
        yield takewhile(lambda item: item is not end, found)  # type: ignore[arg-type]  # never yields `end`


@contextmanager
def mapped_ahead(action: Callable[[Item], Made], items: Iterable[Item], name: str) -> Iterator[Iterator[Made]]:
    """Apply `action` to each item, in order, in a thread that works one item ahead of the caller.

    Items are read in the caller's thread, because some, such as rows of a database cursor, cannot be read in another.
    """
    with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:

        def made() -> Iterator[Made]:
            ahead: Future[Made] | None = None
            for item in items:
                following = thread.submit(action, item)
                if ahead is not None:
                    yield ahead.result()
                ahead = following
            if ahead is not None:
                yield ahead.result()

        yield made()


@contextmanager
def in_background(action: Callable[Args, None], name: str) -> Iterator[Callable[Args, None]]:
    """Run calls in a thread while the caller continues. Calls run in order, one at a time.

    A call's exception is raised by the next call, or at the end of the context.
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
