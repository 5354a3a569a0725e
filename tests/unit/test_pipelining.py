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


def test_one_item_is_made_while_the_one_before_is_used_and_no_more() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    with prefetched(numbers(), "numbers") as items:
        next(items)
        wait_until(lambda: made == [0, 1], description="the second is made ahead")
        next(items)
        wait_until(lambda: made == [0, 1, 2], description="the third is made once the second is taken")


def test_an_error_comes_after_the_items_before_it() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with prefetched(numbers(), "numbers") as items:
        assert next(items) == 1
        with pytest.raises(OSError, match="the disk is gone"):
            next(items)


def test_a_call_does_not_wait_for_itself_but_for_the_one_before() -> None:
    gate, called = threading.Event(), []

    def slow(number: int) -> None:
        gate.wait(20)
        called.append(number)

    with in_background(slow, "writer") as call:
        call(1)
        assert called == []
        gate.set()
        call(2)
        assert called[:1] == [1]

    assert called == [1, 2]


def test_what_a_call_raises_the_next_one_raises_or_the_end_of_the_context() -> None:
    def fail(number: int) -> None:
        raise OSError(f"no space for {number}")

    with in_background(fail, "writer") as call:
        call(1)
        with pytest.raises(OSError, match="no space for 1"):
            call(2)
    with pytest.raises(OSError, match="no space for 1"), in_background(fail, "writer") as call:
        call(1)


def test_mapped_items_are_read_in_the_callers_thread_and_made_one_ahead_in_another() -> None:
    read_by: set[str] = set()
    made_by: set[str] = set()
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(5):
            read_by.add(threading.current_thread().name)
            yield number

    def square(number: int) -> int:
        made_by.add(threading.current_thread().name)
        made.append(number)
        return number * number

    with mapped_ahead(square, numbers(), "squares") as squares:
        first = next(squares)
        wait_until(lambda: made == [0, 1], description="the second is made ahead")
        assert [first, *squares] == [0, 1, 4, 9, 16]

    assert read_by == {threading.current_thread().name}
    assert made_by == {"squares_0"}


def test_an_error_of_a_mapped_item_comes_after_the_items_before_it() -> None:
    def fails_at_two(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    seen: list[int] = []
    with pytest.raises(ValueError, match="two"), mapped_ahead(fails_at_two, range(5), "numbers") as numbers:
        seen.extend(numbers)

    assert seen == [0, 1]
