"""Measure how fast this device multiplies matrices of a model's own shapes. This is the peak that shares refer to.

A datasheet's peak is no useful reference: a laptop, a throttled GPU or a shared core never reaches it. On a CPU the products
are oneDNN's, as in the scorer: torch's own float32 products use a library that is slower on some, so shares could pass 1.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from worker.scoring.backends.cpu import fuse_linear_layers
from worker.scoring.scorer import ModelShape


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to look for the peak."""

    tokens: dict[str, tuple[int, ...]]  # by kind of device: rows of the left matrix; the fastest counts
    seconds: float  # how long each product is repeated, after a warm-up of the same length


THOROUGH = Effort(tokens={"cpu": (512, 2_048), "cuda": (8_192, 32_768, 131_072)}, seconds=0.1)
BRIEF = Effort(tokens={"cpu": (512,), "cuda": (32_768,)}, seconds=0.03)


def matmul_peak(shape: ModelShape, dtype: torch.dtype, device: torch.device, effort: Effort = THOROUGH) -> float:
    """Operations per second over the products of one layer, at the fastest number of tokens."""
    tokens = effort.tokens.get(device.type, effort.tokens["cpu"])
    return max(_layer_rate(shape, many, dtype, device, effort.seconds) for many in tokens)


@lru_cache(maxsize=32)
def brief_matmul_peak(shape: ModelShape, dtype: torch.dtype, device: torch.device) -> float:
    """The peak as a worker measures it when it loads a model: once in a process, in a fraction of a second."""
    return matmul_peak(shape, dtype, device, BRIEF)


def multiplied_in(dtype: str) -> torch.dtype:
    """The type whose peak a format is compared with. 8-bit formats are compared with 16 bits, which they should beat."""
    named = getattr(torch, dtype, None)
    return named if isinstance(named, torch.dtype) and named.is_floating_point else torch.bfloat16


def finish(device: torch.device) -> None:
    """Wait for the device. A GPU is still working when a call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _layer_rate(shape: ModelShape, tokens: int, dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    operations = sum(2 * tokens * rows * columns * count for rows, columns, count in shape.matrices)
    spent = sum(
        count * _seconds(tokens, rows, columns, dtype, device, seconds) for rows, columns, count in shape.matrices
    )
    return operations / spent


@torch.inference_mode()
def _seconds(tokens: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    """Seconds for one product, the fastest of several: disturbances only make it slower."""
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
    times = max(1, int(seconds / 5 / first))
    if first < seconds:  # otherwise that product was warm-up enough
        _repeat(lambda: multiply(times), seconds)
    return min(_repeat(lambda: multiply(times), seconds))


def _repeat(measure: Callable[[], float], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    measured = [measure()]
    while time.perf_counter() < end:
        measured.append(measure())
    return measured
