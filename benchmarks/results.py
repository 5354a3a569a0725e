"""The results of a measurement: the machine, the files, and tables. Shared by all benchmarks and the storms.

Figures mean nothing without the machine, the versions, the commit, the command and the date. Knows no models.
"""

import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

_PACKAGES = (
    *("torch", "transformers", "tokenizers", "sentence-transformers", "dask", "pandas", "pyarrow", "numpy"),
    *("redis", "celery", "kombu", "pydantic"),
)
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")  # CPU features that matter for matrix products
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, kw_only=True)
class Machine:
    device: str  # the GPU's name, or the CPU's
    cpu: str
    cpu_flags: tuple[str, ...]
    cores: int  # that this process may use
    memory_gib: float
    load: float  # load average of the last minute: other work on the machine
    gpu: str  # name, driver, power limit and top clock; empty without one


@dataclass(frozen=True, kw_only=True)
class Provenance:
    machine: Machine
    versions: dict[str, str]
    commit: str
    command: str
    date: str  # UTC


def provenance_of(module: str) -> Provenance:
    return Provenance(
        machine=_machine(),
        versions={"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        commit=_commit(),
        command=shlex.join(["python", "-m", module, *sys.argv[1:]]),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def redis_server_here() -> str:
    """Return name, version and allocator of the Redis that this machine starts."""
    from shardsift.producer.local.redis import (
        find_redis_server,  # here, because a machine that only scores may lack its packages
    )

    said = _output(find_redis_server(), "--version")
    facts = dict(re.findall(r"(\w+)=(\S+)", said))
    name, version, allocator = said.split(" ", 1)[0], facts.get("v", "?"), facts.get("malloc", "?")
    return f"{name} {version} ({allocator}), append-only file, fsync every second"


def machine_slug(found: Provenance) -> str:
    """Return a short name for file names, such as `nvidia-h200` or `amd-epyc`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", found.machine.device.lower())).strip("-")


def write_results(case: str, found: Provenance, report: Mapping[str, object], folder: Path) -> Path:
    """Write `<date>-<machine>-<case>.json`. Overwrites a file of the same day."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "-".join(filter(None, (found.date.split()[0], machine_slug(found), case)))
    file = folder / f"{stem}.json"
    file.write_text(json.dumps({"provenance": asdict(found), **report}, indent=1) + "\n", encoding="utf-8")
    return file


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Markdown table. The cells of the first `names` columns are aligned to the left, all others to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    notes: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        rules = "---|" * self.names + "---:|" * (len(self.columns) - self.names)
        yield from ("", f"## {self.title}", "", f"| {' | '.join(self.columns)} |", f"|{rules}")
        yield from (f"| {' | '.join(row)} |" for row in self.rows)
        if self.notes:
            yield from ("", *self.notes)


def markdown(title: str, found: Provenance, facts: Mapping[str, str], tables: Sequence[Table]) -> str:
    machine = found.machine
    described = f"{machine.cpu}, {machine.cores} cores ({', '.join(machine.cpu_flags)}), {machine.memory_gib} GiB"
    told = {
        "Command": f"`{found.command}`",
        "Commit": found.commit,
        **({"GPU": machine.gpu} if machine.gpu else {}),
        "Machine": f"{described}; load {machine.load} before the run",
        "Versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
        **facts,
    }
    lines = [f"# {title}: {machine.device}, {found.date}", "", *(f"- {name}: {value}" for name, value in told.items())]
    return "\n".join([*lines, *(line for table in tables for line in table.lines())]) + "\n"


def timed(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> tuple[_R, float]:
    """Call a function. Returns its result, and the seconds that it took."""
    started = time.perf_counter()
    return function(*args, **kwargs), time.perf_counter() - started


def _machine() -> Machine:
    cpu, flags = _cpu()
    gpu = _gpu()
    return Machine(
        device=gpu.partition(",")[0] or cpu,
        cpu=cpu,
        cpu_flags=tuple(flag for flag in _FLAGS if flag in flags),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        load=round(os.getloadavg()[0], 2),
        gpu=gpu,
    )


def _cpu() -> tuple[str, set[str]]:
    """Return the name and flags of the CPU. The flags are empty if there is no /proc."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine(), set()
    lines = dict(re.findall(r"^(model name|flags)\s*:\s*(.+)$", info, re.MULTILINE))
    return lines.get("model name", platform.machine()).strip(), set(lines.get("flags", "").split())


def _gpu() -> str:
    """Describe the GPU that this process uses. Empty if the benchmark has not loaded torch or finds no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ""
    name, cuda = torch.cuda.get_device_name(), torch.version.cuda
    said = _output("nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader")
    return f"{name}, CUDA {cuda}, driver, power limit and top clock {said.partition(chr(10))[0] or 'unknown'}"


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


def _output(*command: str) -> str:
    """Return a program's output. Empty if the program is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
