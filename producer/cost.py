"""What a run costs: by the price that somebody gave, or by known list prices, device by device. Knows no Redis.

It covers the time in which workers held shards, not their starts, waits and idle time. Each worker has one GPU.
"""

from dataclasses import dataclass

from fleet.ledger import Counts
from producer.gpus import PRICED_BY, PRICED_ON, gpu_called
from producer.remaining import Remaining

GIVEN = "SHARDSIFT_PRICE_PER_GPU_HOUR"
LISTED = f"list price of {PRICED_BY} on {PRICED_ON}"
UNKNOWN = "devices that are not known"  # of workers that had reported nothing, or are of an earlier version
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class DeviceCost:
    """`device_cost` is `device_seconds` at `device_price` an hour. Both are None for a device without a known price."""

    device: str
    device_seconds: float
    device_price: float | None
    device_cost: float | None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """In the currency of the price, for list prices in US dollars. With list prices, devices without one are left out.

    Then `to_come` assumes the devices of the time so far, and `per_million_rows` is None. A price that was given is that of
    each device.
    """

    so_far: float
    to_come: float | None
    per_million_rows: float | None
    price_from: str  # GIVEN or LISTED
    devices: tuple[DeviceCost, ...] = ()  # the one with the most time first

    @property
    def left_out(self) -> tuple[DeviceCost, ...]:
        return tuple(one for one in self.devices if one.device_cost is None)


def cost_of(counts: Counts, left: Remaining | None, price_per_gpu_hour: float | None) -> Cost | None:
    """None if no price is known."""
    devices = device_costs(counts, price_per_gpu_hour)
    if price_per_gpu_hour is not None:
        so_far = counts.worker_seconds * price_per_gpu_hour / 3600
        return _cost(counts, left, so_far, price_from=GIVEN, devices=devices)
    costs = [one.device_cost for one in devices if one.device_cost is not None]
    return _cost(counts, left, sum(costs), price_from=LISTED, devices=devices) if costs else None


def device_costs(counts: Counts, price_per_gpu_hour: float | None) -> tuple[DeviceCost, ...]:
    """Of each device, the one with the most time first, by the price that was given or by its list price."""
    return tuple(
        _device_cost(device, seconds, _list_price(device) if price_per_gpu_hour is None else price_per_gpu_hour)
        for device, seconds in seconds_by_device(counts).items()
    )


def seconds_by_device(counts: Counts) -> dict[str, float]:
    """The time in which workers held shards, by device, the longest first. UNKNOWN has the time that none was reported for."""
    rest = counts.worker_seconds - sum(counts.device_seconds.values())
    times = {**counts.device_seconds, **({UNKNOWN: rest} if rest >= _LEAST_SECONDS else {})}
    return dict(sorted(times.items(), key=lambda one: -one[1]))


def _cost(
    counts: Counts, left: Remaining | None, so_far: float, *, price_from: str, devices: tuple[DeviceCost, ...]
) -> Cost:
    seconds, is_whole = counts.worker_seconds, all(one.device_cost is not None for one in devices)
    return Cost(
        so_far=so_far,
        to_come=left.worker_seconds * so_far / seconds if left and seconds else None,
        per_million_rows=so_far / counts.rows_scored * 1e6 if counts.rows_scored and is_whole else None,
        price_from=price_from,
        devices=devices,
    )


def _list_price(device: str) -> float | None:
    gpu = gpu_called(device)
    return gpu.price_per_hour if gpu else None


def _device_cost(device: str, seconds: float, price: float | None) -> DeviceCost:
    cost = None if price is None else seconds * price / 3600
    return DeviceCost(device=device, device_seconds=seconds, device_price=price, device_cost=cost)
