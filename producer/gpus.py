"""Kinds of GPUs, with the peak speed and the list price per hour of each."""

import re
from dataclasses import dataclass

# Peaks are for dense 16-bit matrix products that accumulate in float32, from NVIDIA's datasheets:
# T4 65, L4 121 (242 with sparsity), L40S 362, A100 312, H100 SXM and H200 989 (1,979 with sparsity). Other sources:
# A10G 70, from https://www.baseten.co/blog/nvidia-a10-vs-a10g-for-ml-model-inference/, and RTX PRO 6000 Blackwell 504, from
# https://hmc-tech.com/gpu/nvidia-rtx-pro-6000-blackwell-vs-amd-radeon-pro-duo-polaris.
#
# Prices are for the smallest flavor of Hugging Face Jobs with one GPU, from
# https://huggingface.co/docs/hub/jobs-pricing. Jobs have no H100, and the prices of other clouds differ by a factor of
# four, so the H100 has no price here.

PRICED_ON = "2026-11-21"
PRICES_FROM = f"list price of Hugging Face Jobs on {PRICED_ON}"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A kind of GPU. `price_per_hour` is its price in US dollars on Hugging Face Jobs, or None if Jobs do not offer it."""

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
    """Find a GPU by its name in torch, such as `NVIDIA H100 80GB HBM3`. Returns None for a MIG slice or an unlisted device."""
    if "MIG" in device.split():
        return None
    return next((gpu for gpu in GPUS if re.search(rf"\b{re.escape(gpu.name)}\b", device)), None)


def list_price(device: str) -> float | None:
    """Return the list price of a device per hour, in US dollars, by its name in torch. None if no price is listed."""
    gpu = gpu_called(device)
    return gpu.price_per_hour if gpu else None
