"""A worker's process begins a shard when the device has been given all of the one before, and has two at most."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.worker.service import ipc
from shardsift.worker.service.in_hand import InHand
from support.waiting import wait_until

RUN = "r"


class Work:
    """The work on a shard, which ends when the test says so."""

    def __init__(self, *, launches: bool = True, error: Exception | None = None) -> None:
        self.launches, self.error = launches, error
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def run(self, may_begin_next: threading.Event) -> str:
        self.has_begun.set()
        if self.launches:
            may_begin_next.set()
        assert self.may_end.wait(10)
        if self.error:
            raise self.error
        return "done"

    def give_back(self) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ipc.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def in_hand(folder: Path) -> Iterator[InHand]:
    in_hand = InHand()
    yield in_hand
    in_hand.drain()


def reported(folder: Path) -> list[str]:
    (shards,) = ipc.found_held(folder).values()
    return [shard for _, shard in shards]


def test_a_shard_is_begun_while_the_one_before_is_stored_and_a_third_waits_for_the_first(
    in_hand: InHand, folder: Path
) -> None:
    first, second, third = Work(), Work(), Work()

    def begin_the_others() -> None:
        in_hand.begin(RUN, "b", second)
        in_hand.begin(RUN, "c", third)

    assert "beside the next shard" in in_hand.begin(RUN, "a", first)
    task = threading.Thread(target=begin_the_others)
    task.start()
    assert second.has_begun.wait(10)

    assert not third.has_begun.wait(0.2)
    assert in_hand.has(RUN, "a")
    assert reported(folder) == ["a", "b"]
    for work in (first, second, third):
        work.may_end.set()
    assert third.has_begun.wait(10)
    task.join()
    wait_until(lambda: reported(folder) == [], description="all are done")
    assert not in_hand.has(RUN, "a")


def test_an_error_is_raised_unless_the_task_has_ended_before_it(in_hand: InHand) -> None:
    early, late = Work(launches=False, error=OSError("early")), Work(error=OSError("late"))
    early.may_end.set()

    with pytest.raises(OSError, match="early"):
        in_hand.begin(RUN, "a", early)
    in_hand.begin(RUN, "b", late)
    late.may_end.set()

    wait_until(lambda: not in_hand.has(RUN, "b"), description="it has ended")
