"""Measure the peak memory of a trial: the device's memory if torch reports it, otherwise that of the process."""

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # man 5 proc


@dataclass(frozen=True, kw_only=True)
class Gauge:
    what: str  # describes the measurement to the user
    reset: Callable[[], None]  # restarts the peak
    peak_bytes: Callable[[], int]


def gauge_of(device: torch.device) -> Gauge:
    if device.type == "cuda":
        return Gauge(
            what="peak of torch's tensors on the GPU",
            reset=lambda: torch.cuda.reset_peak_memory_stats(device),
            peak_bytes=lambda: int(torch.cuda.max_memory_allocated(device)),
        )
    if device.type == "mps":
        return Gauge(what="GPU memory that torch holds", reset=_nothing, peak_bytes=torch.mps.driver_allocated_memory)
    if _peak_can_be_reset():
        return Gauge(
            what="peak of the process's resident memory",
            reset=_reset_resident_peak,
            peak_bytes=_resident_peak,
        )
    return Gauge(
        what="peak of the process's resident memory since its start", reset=_nothing, peak_bytes=_resident_peak_ever
    )


def _nothing() -> None:
    """This peak cannot be restarted."""


def _peak_can_be_reset() -> bool:
    """True on Linux, except in some containers."""
    try:
        _reset_resident_peak()
        return _resident_peak() > 0
    except (OSError, StopIteration):
        return False


def _reset_resident_peak() -> None:
    _RESET.write_text(_RESET_PEAK)


def _resident_peak() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _resident_peak_ever() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
