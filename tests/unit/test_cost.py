"""What a run costs is the time of its workers at a price that is named, and what has no price is left out and named too."""

from dataclasses import replace

import pytest

from fleet.ledger import Counts
from producer.status.cost import GIVEN, LISTED, PRICED_BY, PRICED_ON, UNKNOWN, cost_of
from producer.status.remaining import Remaining

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
    device_seconds={"NVIDIA L4": 2 * HOUR, "NVIDIA H200": HOUR},
)
LEFT = Remaining(low=0.9 * HOUR, high=1.1 * HOUR, worker_seconds=1.5 * HOUR)


def test_a_given_price_counts_for_all_devices() -> None:
    cost = cost_of(COUNTS, LEFT, 2.0)

    assert cost is not None
    assert (cost.so_far, cost.to_come, cost.per_million_rows) == pytest.approx((6.0, 3.0, 6.0))
    assert cost.price_from == GIVEN
    assert [(one.device, one.device_price, one.device_cost) for one in cost.devices] == [
        ("NVIDIA L4", 2.0, pytest.approx(4.0)),
        ("NVIDIA H200", 2.0, pytest.approx(2.0)),
    ]


def test_a_mixed_fleet_adds_up_device_by_device() -> None:
    cost = cost_of(COUNTS, LEFT, None)

    assert cost is not None
    assert {one.device: (one.device_price, one.device_cost) for one in cost.devices} == {
        "NVIDIA L4": (0.80, pytest.approx(1.60)),
        "NVIDIA H200": (5.00, pytest.approx(5.00)),
    }
    assert (cost.so_far, cost.to_come, cost.per_million_rows) == pytest.approx((6.6, 3.3, 6.6))
    assert cost.left_out == ()
    assert cost.price_from == LISTED
    assert PRICED_BY in LISTED
    assert PRICED_ON in LISTED


def test_devices_without_a_price_and_time_that_no_device_was_reported_for_are_left_out() -> None:
    counts = replace(COUNTS, device_seconds={"NVIDIA L4": HOUR, "NVIDIA H100 80GB HBM3": HOUR})

    cost = cost_of(counts, LEFT, None)

    assert cost is not None
    assert {(one.device, one.device_seconds) for one in cost.left_out} == {
        ("NVIDIA H100 80GB HBM3", HOUR),
        (UNKNOWN, HOUR),
    }
    assert (cost.so_far, cost.to_come, cost.per_million_rows) == (pytest.approx(0.8), pytest.approx(0.4), None)


@pytest.mark.parametrize("device_seconds", [{}, {"cpu": 3 * HOUR}])
def test_a_fleet_without_any_known_price_has_no_cost(device_seconds: dict[str, float]) -> None:
    assert cost_of(replace(COUNTS, device_seconds=device_seconds), LEFT, None) is None
