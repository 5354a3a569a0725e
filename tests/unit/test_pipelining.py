"""Overlapping steps keep the order of items and calls, raise errors in the right place, and leave no thread behind."""

import threading
from collections.abc import Iterator

import pytest

from shardsift.worker.shard.pipelining import in_background, mapped_ahead, prefetched
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_one_item_is_made_while_the_one_before_is_used_and_an_error_comes_after_the_items_before_it() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            made.append(number)
            yield number
        raise OSError("the disk is gone")

    with prefetched(numbers(), "numbers") as items:
        next(items)
        wait_until(lambda: made == [0, 1], description="the second is made ahead")
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(items)


def test_a_call_waits_for_the_one_before_and_raises_its_error_which_the_end_of_the_context_raises_too() -> None:
    gate, called = threading.Event(), []

    def slow(number: int) -> None:
        gate.wait(20)
        called.append(number)
        if number == 2:
            raise OSError("no space for 2")

    with in_background(slow, "writer") as call:
        call(1)
        assert called == []
        gate.set()
        call(2)
        assert called[:1] == [1]
        with pytest.raises(OSError, match="no space for 2"):
            call(3)
    assert called == [1, 2]
    with pytest.raises(OSError, match="no space for 2"), in_background(slow, "writer") as call:
        call(2)


def test_mapped_items_are_read_in_the_callers_thread_and_made_one_ahead_in_another_until_an_error() -> None:
    read_by: set[str] = set()
    made_by: set[str] = set()
    made: list[int] = []
    seen: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(5):
            read_by.add(threading.current_thread().name)
            yield number

    def quotient(number: int) -> int:
        made_by.add(threading.current_thread().name)
        made.append(number)
        return 4 // (3 - number)

    with mapped_ahead(quotient, numbers(), "quotients") as results:
        seen.append(next(results))
        wait_until(lambda: made == [0, 1], description="the second is made ahead")
        with pytest.raises(ZeroDivisionError):
            seen.extend(results)

    assert seen == [1, 2, 4]
    assert read_by == {threading.current_thread().name}
    assert made_by == {"quotients_0"}
