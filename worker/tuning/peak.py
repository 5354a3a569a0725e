"""The fastest that this device multiplies matrices of a model's own shapes: what a share of the peak is a share of.

A datasheet's peak would flatter no one: a laptop, a throttled GPU and a shared core never reach it.
"""

import time
from collections.abc import Callable

import torch

from worker.tuning.flops import Shape

_TOKENS = {"cpu": (512, 2_048), "cuda": (8_192, 32_768, 131_072)}  # rows of the left matrix; the best counts
_SECONDS = 0.1  # each product is repeated this long after as long a warm-up


def matmul_peak(shape: Shape, dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second over one layer's products, by the best number of tokens."""
    return max(_layer_rate(shape, tokens, dtype, device) for tokens in _TOKENS.get(device.type, _TOKENS["cpu"]))


def multiplied_in(dtype: str) -> torch.dtype:
    """The type whose peak a format is measured by: for the formats of 8 bits, that of 16 that they are to beat."""
    named = getattr(torch, dtype, None)
    return named if isinstance(named, torch.dtype) and named.is_floating_point else torch.bfloat16


def finish(device: torch.device) -> None:
    """A GPU works on after the call has returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _layer_rate(shape: Shape, tokens: int, dtype: torch.dtype, device: torch.device) -> float:
    operations = sum(2 * tokens * rows * columns * count for rows, columns, count in shape.matrices)
    seconds = sum(count * _seconds(tokens, rows, columns, dtype, device) for rows, columns, count in shape.matrices)
    return operations / seconds


def _seconds(tokens: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> float:
    """Of one product, the best of several: what disturbs it only makes it slower."""
    left = torch.randn(tokens, rows, device=device).to(dtype)
    right = torch.randn(columns, rows, device=device).to(dtype).t()  # as the weights of a linear layer lie

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
