"""Measure how fast this device multiplies matrices of a model's own shapes. This is the peak that shares refer to.

A datasheet's peak is no useful reference: a laptop, a throttled GPU or a shared core never reaches it.
"""

import time
from collections.abc import Callable

import torch

from fleet.flops import Shape

_TOKENS = {"cpu": (512, 2_048), "cuda": (8_192, 32_768, 131_072)}  # rows of the left matrix; the fastest counts
_SECONDS = 0.1  # how long each product is repeated, after a warm-up of the same length


def matmul_peak(shape: Shape, dtype: torch.dtype, device: torch.device) -> float:
    """Operations per second over the products of one layer, at the fastest number of tokens."""
    return max(_layer_rate(shape, tokens, dtype, device) for tokens in _TOKENS.get(device.type, _TOKENS["cpu"]))


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


def _layer_rate(shape: Shape, tokens: int, dtype: torch.dtype, device: torch.device) -> float:
    operations = sum(2 * tokens * rows * columns * count for rows, columns, count in shape.matrices)
    seconds = sum(count * _seconds(tokens, rows, columns, dtype, device) for rows, columns, count in shape.matrices)
    return operations / seconds


def _seconds(tokens: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> float:
    """Seconds for one product, the fastest of several: disturbances only make it slower."""
    left = torch.randn(tokens, rows, device=device).to(dtype)
    right = torch.randn(columns, rows, device=device).to(dtype).t()  # the memory layout of a linear layer's weights

    def multiply(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right)
        finish(device)
        return (time.perf_counter() - start) / times

    times = max(1, int(_SECONDS / 5 / multiply(1)))
    _repeat(lambda: multiply(times), _SECONDS)
    return min(_repeat(lambda: multiply(times), _SECONDS))


def _repeat(measure: Callable[[], float], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    measured = [measure()]
    while time.perf_counter() < end:
        measured.append(measure())
    return measured
