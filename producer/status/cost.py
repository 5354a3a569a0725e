"""What a run costs: by the price that somebody gave, or by known list prices, device by device. Knows no Redis.

It covers the time in which workers held shards, not their starts, waits and idle time. Each worker has one GPU.
"""

import re
from dataclasses import dataclass

from fleet.ledger import Counts
from producer.status.remaining import Remaining

# Kinds of GPUs: how fast each may be, and what an hour of it costs by list price.
#
# Peaks are for 16-bit matrix products with dense matrices and accumulation in float32, from NVIDIA's datasheets:
# T4 65, L4 121 (242 with sparsity), L40S 362, A100 312, H100 SXM and H200 989 (1,979 with sparsity). Two are second-hand:
# A10G 70, from https://www.baseten.co/blog/nvidia-a10-vs-a10g-for-ml-model-inference/, and RTX PRO 6000 Blackwell 504, from
# https://hmc-tech.com/gpu/nvidia-rtx-pro-6000-blackwell-vs-amd-radeon-pro-duo-polaris.
#
# Prices are those of Hugging Face Jobs for one GPU, https://huggingface.co/docs/hub/jobs-pricing, of the smallest flavor. It has
# no H100, and what others ask for one differs by a factor of four, so it has no price here.

PRICED_BY = "Hugging Face Jobs"
PRICED_ON = "2026-11-21"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A kind of GPU. `price_per_hour` is in US dollars, at PRICED_BY on PRICED_ON; None if it is not rented out there."""

    name: str
    peak: float  # operations per second
    price_per_hour: float | None = None

    def is_called(self, device: str) -> bool:
        """Whether a device of this name, as torch tells it, is a whole GPU of this kind."""
        return re.search(rf"\b{re.escape(self.name)}\b", device) is not None and "MIG" not in device.split()


GPUS = (
    Gpu(name="T4", peak=65e12, price_per_hour=0.40),
    Gpu(name="L4", peak=121e12, price_per_hour=0.80),
    Gpu(name="A10G", peak=70e12, price_per_hour=1.00),
    Gpu(name="L40S", peak=362e12, price_per_hour=1.80),
    Gpu(name="A100", peak=312e12, price_per_hour=2.50),
    Gpu(name="RTX PRO 6000", peak=504e12, price_per_hour=2.75),
    Gpu(name="H100", peak=989e12),
    Gpu(name="H200", peak=989e12, price_per_hour=5.00),
)


def gpu_called(device: str) -> Gpu | None:
    """The kind of GPU that torch calls so, such as `NVIDIA H100 80GB HBM3`. None for any other device."""
    return next((gpu for gpu in GPUS if gpu.is_called(device)), None)


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
