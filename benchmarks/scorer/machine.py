"""Describe where and when figures were measured, because figures mean nothing without it. Knows nothing of models."""

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import torch

_PACKAGES = ("torch", "transformers", "tokenizers", "sentence-transformers", "dask", "pandas", "pyarrow", "numpy")
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")  # of a CPU, those that matter for matrices


class Kind(StrEnum):
    """The machine that the figures depend on."""

    GPU = "gpu"
    CPU_AMX = "cpu with AMX"
    CPU = "cpu without AMX"


@dataclass(frozen=True, kw_only=True)
class Machine:
    kind: Kind
    device: str  # the GPU's name, or the CPU's
    cpu: str
    cpu_flags: tuple[str, ...]
    cores: int  # that this process may use
    threads: int  # of torch, the same for all contenders
    memory_gib: float
    load: float  # load average of the last minute: other work on the machine
    gpu: str  # name, memory, driver, power limit; empty without one


@dataclass(frozen=True, kw_only=True)
class Provenance:
    machine: Machine
    versions: dict[str, str]
    commit: str
    command: str
    date: str  # UTC


def provenance() -> Provenance:
    return Provenance(
        machine=_machine(),
        versions={"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        commit=_commit(),
        command=_command(),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def device_slug(machine: Machine) -> str:
    """A short name for file names, such as `nvidia-h200` or `amd-epyc`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", machine.device.lower())).strip("-")


def _machine() -> Machine:
    cpu, flags = _cpu()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return Machine(
        kind=Kind.GPU if gpu else Kind.CPU_AMX if "amx_bf16" in flags else Kind.CPU,
        device=gpu or cpu,
        cpu=cpu,
        cpu_flags=tuple(flag for flag in _FLAGS if flag in flags),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        load=round(os.getloadavg()[0], 2),
        gpu=_gpu() if gpu else "",
    )


def _cpu() -> tuple[str, set[str]]:
    """Name and flags of the CPU; only the name if there is no /proc."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine(), set()
    lines = dict(re.findall(r"^(model name|flags)\s*:\s*(.+)$", info, re.MULTILINE))
    return lines.get("model name", platform.machine()).strip(), set(lines.get("flags", "").split())


def _gpu() -> str:
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    named = f"{torch.cuda.get_device_name()}, {memory:.0f} GiB, CUDA {torch.version.cuda}"
    said = _output("nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader")
    return f"{named}, driver, power limit and top clock {said.splitlines()[0]}" if said else named


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    here = str(Path(__file__).parent)
    commit = _output("git", "-C", here, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return os.environ.get("COMMIT", "unknown")
    return commit + " with changes" * bool(_output("git", "-C", here, "status", "--porcelain"))


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks.scorer", *sys.argv[1:]])


def _output(*command: str) -> str:
    """The program's output; empty if the program is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
