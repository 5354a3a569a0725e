"""Measure a model's work as a share of the matmul peak: the device's speed at products of the model's own matrices.

A datasheet's peak is no useful reference, because a laptop, a throttled GPU or a shared core never reaches it. On a
CPU, oneDNN computes the products, as in the scorer. torch's own products are slower on some CPUs, so shares of their
speed could exceed 1.
"""

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from statistics import fmean

import numpy as np
import numpy.typing as npt
import torch

from shardsift.worker.scoring import ModelShape
from shardsift.worker.scoring.backends.cpu import fuse_linear_layers
from shardsift.worker.scoring.device import answer_of

_TOKENS_CPU, _TOKENS_GPU = 512, 32_768  # rows of the left matrix
_SECONDS_CPU, _SECONDS_GPU = 0.03, 0.4  # time for about five runs of a product, after as long a warm-up
logger = logging.getLogger(__name__)


class DeviceWork:
    """The work of a model so far. `peak` is in operations per second. One thread may add batches while others read.

    `seconds_at_peak` divided by the seconds that the work took is the share of the peak, also known as MFU (Chowdhery
    et al., PaLM, 2022, appendix B, https://arxiv.org/abs/2204.02311). Only operations on the texts' own tokens count,
    so padding and waiting lower the share. Operations that a backend saves are counted all the same, and raise the share.
    """

    def __init__(self, shape: ModelShape, peak: float) -> None:
        self.peak = peak
        self.seconds_at_peak = 0.0
        self._shape = shape

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        """Count a batch. `lengths` has the number of tokens of each text. A GPU may still be computing the batch."""
        self.seconds_at_peak += float(self._shape.flops(lengths).sum()) / self.peak


def measured_work(shape: ModelShape | None, dtype: str, device: torch.device) -> DeviceWork | None:
    """Measure the device's matmul peak, and return a counter of work relative to it.

    None if the model's layers are unknown (no `shape`), or the peak cannot be measured.
    """
    if shape is None:
        return None
    try:
        return DeviceWork(shape, matmul_peak(shape, getattr(torch, dtype), device))
    except RuntimeError as error:  # no memory left, or a format that the device cannot multiply
        logger.warning("The matmul peak of this device is not known: %s", error)
        return None


@lru_cache(maxsize=32)
def matmul_peak(shape: ModelShape, dtype: torch.dtype, device: torch.device) -> float:
    """Measure the operations per second of the matrix products of one layer. Cached per process.

    Takes seconds on a GPU: its clock falls under load, so each product is repeated for a while.
    """
    tokens = _TOKENS_GPU if device.type == "cuda" else _TOKENS_CPU
    operations = sum(2 * tokens * rows * columns * count for rows, columns, count in shape.matrices)
    spent = sum(count * _seconds(tokens, rows, columns, dtype, device) for rows, columns, count in shape.matrices)
    if clock := answer_of(lambda: torch.cuda.clock_rate(device)):
        logger.info("The GPU's clock is %d MHz while it multiplies matrices.", clock)
    return operations / spent


@torch.inference_mode()
def _seconds(tokens: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> float:
    """Time one product: the fastest of several runs on a CPU, the mean on a GPU, whose clock falls under load."""
    limit = _SECONDS_CPU if device.type == "cpu" else _SECONDS_GPU
    states = torch.randn(tokens, rows, device=device).to(dtype)
    layer = torch.nn.Sequential(torch.nn.Linear(rows, columns, bias=False, device=device).to(dtype))
    if device.type == "cpu":
        fuse_linear_layers(layer)

    def multiply(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            layer(states)
        finish(device)
        return (time.perf_counter() - start) / times

    first = multiply(1)
    times = max(1, int(limit / 5 / first))
    if first < limit:  # otherwise the first product was enough to warm up
        times = max(1, int(limit / 5 / min(_repeat(lambda: multiply(times), limit))))
    measured = _repeat(lambda: multiply(times), limit)
    return min(measured) if device.type == "cpu" else fmean(measured)


def _repeat(measure: Callable[[], float], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    measured = [measure()]
    while time.perf_counter() < end:
        measured.append(measure())
    return measured


def finish(device: torch.device) -> None:
    """Wait until the device has finished its work. Calls to a GPU return before that."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
