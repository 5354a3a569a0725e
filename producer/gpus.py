"""Kinds of GPUs, with the peak speed and the list price per hour of each."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from huggingface_hub import HfApi

from shardsift.fleet.errors import ShardsiftError
from shardsift.fleet.storage.errors import translated

# Peaks are for dense 16-bit matrix products that accumulate in float32, from NVIDIA's datasheets:
# T4 65, L4 121 (242 with sparsity), L40S 362, A100 312, H100 SXM and H200 989 (1,979 with sparsity). Other sources:
# A10G 70, from https://www.baseten.co/blog/nvidia-a10-vs-a10g-for-ml-model-inference/, and RTX PRO 6000 Blackwell 504, from
# https://hmc-tech.com/gpu/nvidia-rtx-pro-6000-blackwell-vs-amd-radeon-pro-duo-polaris.
#
# Prices are for the smallest flavor of Hugging Face Jobs with one GPU. The prices below, from
# https://huggingface.co/docs/hub/jobs-pricing, are used if the Hub does not answer. Jobs have no H100, and the prices
# of other clouds differ by a factor of four, so the H100 has no price here.

PRICED_ON = "2026-11-21"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A kind of GPU. `price_per_hour` is its US dollar price on Hugging Face Jobs on PRICED_ON; None if not offered."""

    name: str
    peak: float  # operations per second
    price_per_hour: float | None = None


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
    """Find the GPU of this name in torch, such as `NVIDIA H100 80GB HBM3`. None for a MIG slice or other device."""
    if "MIG" in device.split():
        return None
    return next((gpu for gpu in GPUS if re.search(rf"\b{re.escape(gpu.name)}\b", device)), None)


@dataclass(frozen=True, kw_only=True)
class ListPrices:
    """Prices of one GPU per hour, in US dollars, by the names in GPUS. GPUs without a price are left out."""

    per_hour: Mapping[str, float]
    source: str  # for people: where the prices are from

    def of(self, device: str) -> float | None:
        gpu = gpu_called(device)
        return self.per_hour.get(gpu.name) if gpu else None


TABLE = ListPrices(
    per_hour={gpu.name: gpu.price_per_hour for gpu in GPUS if gpu.price_per_hour is not None},
    source=f"list price of Hugging Face Jobs on {PRICED_ON}",
)


def list_prices() -> ListPrices:
    """Read the current prices of Hugging Face Jobs. Returns TABLE if the Hub does not answer."""
    found: dict[str, float] = {}
    try:
        with translated("Asking for the prices of Hugging Face Jobs"):
            for flavor in HfApi().list_jobs_hardware():
                part = flavor.accelerator
                gpu = gpu_called(part.model) if part and part.quantity == "1" else None
                if gpu and flavor.unit_label == "minute":
                    price = round(flavor.unit_cost_usd * 60, 2)
                    found[gpu.name] = min(price, found.get(gpu.name, price))
    except ShardsiftError:
        return TABLE
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return ListPrices(per_hour=found, source=f"list price of Hugging Face Jobs on {today}") if found else TABLE
