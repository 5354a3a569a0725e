"""The time that is left, against simulated runs whose end is known, and what a run costs."""

import heapq
from dataclasses import replace

import pytest

from shardsift.fleet.ledger import Counts, Pace, RunningShard
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.producer.status.forecast import remaining

ROWS, SECONDS = 10_000, 100.0  # of a shard
REPORT = AttemptReport(device="cpu", rows_per_second=0, rows_written=0, rows_kept=0, tokens=0, seconds={})


def at(
    time: float, *, shards: int, workers: int, seconds: list[float] | None = None
) -> tuple[Counts, Pace, list[RunningShard], float]:
    """A run of these shards at this time, as the ledger shows it, and when it ends."""
    takes = seconds or [SECONDS] * shards
    free = [0.0] * workers
    spans = []
    for took in takes:
        begins = heapq.heappop(free)
        heapq.heappush(free, begins + took)
        spans.append((begins, begins + took))
    done = sum(end <= time for _, end in spans)
    parts = [(time - begin) / (end - begin) for begin, end in spans if begin <= time < end]
    counts = Counts(
        shards=shards,
        queued=shards - done - len(parts),
        running=len(parts),
        done=done,
        failed=0,
        rows_in=done * ROWS,
        rows_kept=0,
        rows_dropped=done * ROWS,
        rows_errored=0,
        rows_running=round(sum(parts) * ROWS),
        seconds=time,
        worker_seconds=sum(max(0.0, min(end, time) - begin) for begin, end in spans),
    )
    rate = workers * ROWS / (sum(takes) / len(takes))
    pace = Pace(rows_lately=round(rate * 60), seconds_lately=60.0, rows=done * ROWS + counts.rows_running)
    running = [
        RunningShard(name=str(number), worker=f"w{number}", rows=round(part * ROWS))
        for number, part in enumerate(parts)
    ]
    return counts, pace, running, max(end for _, end in spans)


@pytest.mark.parametrize(("shards", "workers"), [(250, 100), (250, 7), (40, 3), (8, 1), (40_000, 1000), (9, 4)])
def test_after_a_quarter_of_even_shards_the_estimate_is_within_15_percent(shards: int, workers: int) -> None:
    *_, end = at(0, shards=shards, workers=workers)
    time = max(end / 4, SECONDS) + 1  # a shard must be done
    counts, pace, running, _ = at(time, shards=shards, workers=workers)

    left = remaining(counts, pace, running)

    assert (left.low + left.high) / 2 == pytest.approx(end - time, rel=0.15)
    assert left.low <= end - time <= left.high


def test_the_range_of_uneven_shards_is_wide_at_first_and_gets_narrower() -> None:
    takes = [SECONDS * (0.5 + (number * 7919 % 100) / 100) for number in range(200)]
    spans = []
    for share in (0.02, 0.05, 0.1, 0.5, 0.9):
        *_, end = at(0, shards=200, workers=4, seconds=takes)
        counts, pace, running, _ = at(end * share, shards=200, workers=4, seconds=takes)
        left = remaining(counts, pace, running)
        assert left.low <= end * (1 - share) <= left.high
        spans.append(round((left.high - left.low) / (left.high + left.low), 6))

    assert spans == sorted(spans, reverse=True)
    assert spans[0] > spans[-1]


def test_nothing_is_said_before_a_shard_is_done_or_while_no_worker_scores() -> None:
    counts, pace, running, _ = at(SECONDS / 2, shards=4, workers=2)
    assert remaining(counts, pace, running) is None

    counts, pace, running, _ = at(1.5 * SECONDS, shards=4, workers=2)
    assert remaining(counts, pace, running) is not None
    assert remaining(counts, pace, []) is None
    assert remaining(counts, Pace(), running) is None


def test_the_shard_of_a_silent_worker_waits_for_its_lease_and_is_begun_again() -> None:
    counts, pace, running, _ = at(350.0, shards=8, workers=2)  # each has half of its shard; none is queued
    gone = replace(running[0], seen_seconds=20.0, lease_seconds_left=40.0)

    before, left = remaining(counts, pace, running), remaining(counts, pace, [gone, running[1]])

    assert (left.low + left.high) / 2 == pytest.approx(max(40.0 + SECONDS, 1.5 * SECONDS))
    assert left.high > before.high
    assert remaining(counts, pace, [gone]) is None
    hung = replace(running[0], report=replace(REPORT, idle_seconds=400.0), lease_seconds_left=40.0)
    assert remaining(counts, pace, [hung, running[1]]) == left


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_time_left_does_not_shrink_when_a_worker_dies(workers: int) -> None:
    """The rows of the last minutes are still those of all workers, and its shard waits for another one."""
    counts, pace, running, _ = at(150.0, shards=40, workers=workers)
    without = replace(counts, running=workers - 1, queued=counts.queued + 1, rows_running=counts.rows_running // 2)

    before, left = remaining(counts, pace, running), remaining(without, pace, running[1:])

    assert left.low > before.low
    assert left.worker_seconds > before.worker_seconds  # the dead worker's rows are scored again


def test_a_worker_that_stores_one_shard_and_scores_the_next_is_one_worker() -> None:
    counts, pace, running, _ = at(10 * SECONDS + 1, shards=40, workers=1)
    alone = remaining(counts, pace, running)

    both = remaining(counts, pace, [*running, RunningShard(name="stored", worker=running[0].worker, rows=ROWS)])

    assert both == alone
