"""The speed of a run is that of its last minutes, and of the time in which workers had shards."""

import pytest

from shardsift.fleet.ledger.results import Pace, read_pace

SLOT = 170_000_000  # slots of ten seconds
BEGIN_MS = SLOT * 10_000


def noted(ring_of: dict[int, int], **fields: int) -> dict[str, str]:
    """The run's hash, with this many rows in each slot since its start."""
    ring = {f"pace:{(SLOT + number) % 30}": f"{SLOT + number}:{rows}" for number, rows in ring_of.items()}
    slots, rows = len(ring_of), sum(ring_of.values())
    run = {"started_ms": BEGIN_MS, "slots": slots, "worker_ms": slots * 10_000, "rows_scored": rows, **fields}
    return {"spec": "{}", **ring, **{name: str(value) for name, value in run.items()}}


def at(seconds: float) -> int:
    return BEGIN_MS + int(seconds * 1000)


def test_a_run_that_has_not_started_has_no_pace() -> None:
    assert read_pace({"spec": "{}"}, now_ms=at(0), end_ms=at(0)) == Pace()


def test_time_without_a_worker_does_not_count() -> None:
    run = noted({0: 1000, 12: 1000})  # with a worker, then two minutes without one, then with one again

    pace = read_pace(run, now_ms=at(130), end_ms=at(130))

    assert (pace.rows_per_second_lately, pace.rows_per_second) == (100, 100)


def test_the_last_five_minutes_count_alone() -> None:
    run = noted({0: 50, 100: 2000}, rows_scored=90_000, slots=101)

    pace = read_pace(run, now_ms=at(1010), end_ms=at(1010))

    assert (pace.rows_lately, pace.rows_per_second_lately) == (2000, 200)
    assert pace.rows == 90_000


@pytest.mark.parametrize(("now", "rate"), [(2, 50), (4, 25), (10, 10)])
def test_a_slot_counts_as_far_as_it_is_over(now: float, rate: float) -> None:
    assert read_pace(noted({0: 100}), now_ms=at(now), end_ms=at(now)).rows_per_second_lately == rate


def test_no_more_time_counts_than_workers_had_shards_in_all() -> None:
    run = noted({0: 100, 1: 20}, worker_ms=12_000)  # one worker, which stopped in the second slot

    pace = read_pace(run, now_ms=at(60), end_ms=at(60))

    assert (pace.seconds, pace.rows_per_second) == (12, 10)


def test_a_run_that_ended_does_not_grow_slower() -> None:
    run = noted({0: 100}, advanced_ms=at(4))

    soon, later = (read_pace(run, now_ms=at(now), end_ms=at(4)) for now in (5, 100_000))

    assert soon.rows_per_second == later.rows_per_second == 25
    assert (soon.idle_seconds, later.idle_seconds) == (1, 99_996)
