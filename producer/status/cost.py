"""Prices: what a run costs by the price that was given, and the GPUs with peak and list price that estimates use."""

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


@dataclass(frozen=True, kw_only=True)
class Cost:
    """In the currency of the price. It covers the time in which workers held shards, not their starts, waits and idle time."""

    so_far: float
    to_come: float | None
    per_million_rows: float | None


def cost_of(counts: Counts, left: Remaining | None, price_per_gpu_hour: float | None) -> Cost | None:
    """None without a price. Each worker has one GPU."""
    if price_per_gpu_hour is None:
        return None
    so_far = counts.worker_seconds * price_per_gpu_hour / 3600
    return Cost(
        so_far=so_far,
        to_come=left.worker_seconds * price_per_gpu_hour / 3600 if left else None,
        per_million_rows=so_far / counts.rows_scored * 1e6 if counts.rows_scored else None,
    )
