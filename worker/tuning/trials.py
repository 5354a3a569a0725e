"""Time settings against each other. Each turn runs all of them, so a disturbance of the machine affects all.

Knows nothing of models or files.
"""

import gc
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median

import torch

from fleet.errors import UsageError
from fleet.process.tuned import Figures
from worker.scoring.peak import finish

# Measure the peak memory of a trial: the device's memory if torch reports it, otherwise that of the process.

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


_NEAR_ENOUGH = 0.98  # of the highest rate: a larger batch that gains less is not worth its memory


class TooLargeError(Exception):
    """A setting does not fit in the device's memory."""


class Way(StrEnum):
    BUDGET = "budget"  # ours; the size is in tokens, padding included
    PIPELINE = "pipeline"  # transformers' own; the size is in rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    way: Way
    size: int

    def __str__(self) -> str:
        return f"{self.size:,} tokens" if self.way is Way.BUDGET else f"pipeline, {self.size:,} rows"


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work that every setting does once per turn."""

    rows: int
    tokens: int  # without padding
    operations: float | None  # floating point, for those tokens; None for a model whose layers are not known


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting, ready to run."""

    setting: Setting
    waste: float  # share of padding among the tokens that go through the model
    run: Callable[[], object]  # does all the work; raises TooLargeError


@dataclass(frozen=True, kw_only=True)
class Trial:
    setting: Setting
    figures: Figures | None  # None if out of memory


@dataclass(frozen=True, kw_only=True)
class Sweep:
    trials: tuple[Trial, ...]  # in the order of the candidates
    peak: float | None  # matmul operations per second, median over the turns


def sweep(
    candidates: list[Candidate],
    work: Work,
    *,
    repeats: int,
    device: torch.device,
    peak: Callable[[], float] | None,
    say: Callable[[str], None],
) -> Sweep:
    """Run each candidate once to warm up and `repeats` times to measure. `peak` measures the matmul peak each turn."""
    gauge = gauge_of(device)
    laps: dict[Setting, list[_Lap]] = {}
    gc.collect()  # garbage of an earlier sweep must not count as this one's memory
    for candidate in candidates:
        say(f"Warming up: {candidate.setting}")
        if _lap(candidate, device, gauge) is not None:
            laps[candidate.setting] = []
    peaks = []
    for turn in range(repeats):
        gc.collect()  # here rather than while the clock runs
        peaks += [peak()] if peak else []
        in_turn = [candidate for candidate in candidates if candidate.setting in laps]
        for candidate in (
            in_turn if turn % 2 == 0 else reversed(in_turn)
        ):  # alternating, so that none always follows the same one
            lap = _lap(candidate, device, gauge)
            if lap is None:
                del laps[candidate.setting]
                continue
            laps[candidate.setting].append(lap)
            say(f"Turn {turn + 1} of {repeats}: {candidate.setting}: {work.rows / lap.seconds:,.1f} rows/s")
    reached = median(peaks) if peaks else None
    trials = [_trial(candidate, laps.get(candidate.setting), work, reached) for candidate in candidates]
    return Sweep(trials=tuple(trials), peak=reached)


def best_of(trials: tuple[Trial, ...]) -> Trial:
    """The smallest setting within 2 % of the fastest. Raises UsageError if none fits in memory."""
    rates = {trial.setting.size: trial.figures.rows_per_second for trial in trials if trial.figures}
    if not rates:
        smallest = min(trial.setting.size for trial in trials)
        raise UsageError(f"Batches of {smallest:,} tokens do not fit in memory. Try smaller ones with --budgets.")
    near = min(size for size, rate in rates.items() if rate >= _NEAR_ENOUGH * max(rates.values()))
    return next(trial for trial in trials if trial.setting.size == near)


@dataclass(frozen=True, kw_only=True)
class _Lap:
    seconds: float
    memory_bytes: int


def _lap(candidate: Candidate, device: torch.device, gauge: Gauge) -> _Lap | None:
    """None if the candidate runs out of memory."""
    gauge.reset()
    finish(device)
    start = time.perf_counter()
    try:
        candidate.run()
    except TooLargeError:
        pass
    else:
        finish(device)
        return _Lap(seconds=time.perf_counter() - start, memory_bytes=gauge.peak_bytes())
    if device.type == "cuda":
        torch.cuda.empty_cache()  # not inside the except block: its traceback holds the batch's tensors
    return None


def _trial(candidate: Candidate, laps: list[_Lap] | None, work: Work, peak: float | None) -> Trial:
    if not laps:
        return Trial(setting=candidate.setting, figures=None)
    seconds = median(lap.seconds for lap in laps)
    figures = Figures(
        rows_per_second=work.rows / seconds,
        tokens_per_second=work.tokens / seconds,
        waste=candidate.waste,
        memory_bytes=max(lap.memory_bytes for lap in laps),
        peak_share=work.operations / (seconds * peak) if work.operations and peak else None,
    )
    return Trial(setting=candidate.setting, figures=figures)
