"""A run costs the time of its workers at the price that was given."""

from fleet.ledger import Counts
from producer.status.forecast import Cost, Remaining, cost_of

HOUR = 3600.0
COUNTS = Counts(
    shards=4,
    queued=1,
    running=1,
    done=2,
    failed=0,
    rows_in=1_000_000,
    rows_kept=1,
    rows_dropped=999_999,
    rows_errored=0,
    rows_running=0,
    seconds=2 * HOUR,
    worker_seconds=3 * HOUR,
)
LEFT = Remaining(low=0.9 * HOUR, high=1.1 * HOUR, worker_seconds=1.5 * HOUR)


def test_the_cost_is_the_time_of_all_workers_times_the_price() -> None:
    cost = cost_of(COUNTS, LEFT, 2.0)

    assert cost == Cost(so_far=6.0, to_come=3.0, per_million_rows=6.0)
    assert cost_of(COUNTS, None, 2.0) == Cost(so_far=6.0, to_come=None, per_million_rows=6.0)
    assert cost_of(COUNTS, LEFT, None) is None
