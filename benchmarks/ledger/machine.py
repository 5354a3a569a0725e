"""Describe where and when figures were measured, because figures mean nothing without it."""

import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from producer.local.redis import find_redis_server

_PACKAGES = ("redis", "celery", "kombu", "pydantic")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    cpu: str
    cores: int  # that this process may use
    memory_gib: float
    load: float  # load average of the last minute: other work on the machine
    server: str  # the Redis or Valkey
    versions: dict[str, str]
    commit: str
    command: str
    date: str  # UTC


def provenance() -> Provenance:
    return Provenance(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        load=round(os.getloadavg()[0], 2),
        server=_server(),
        versions={"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
        commit=_commit(),
        command=shlex.join(["python", "-m", "benchmarks.ledger", *sys.argv[1:]]),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def machine_slug(found: Provenance) -> str:
    """A short name for file names, such as `amd-epyc`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", found.cpu.lower())).strip("-")


def _cpu() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _server() -> str:
    """Name, version and allocator, from `redis-server --version`."""
    said = _output(find_redis_server(), "--version")
    name = said.split(" ", 1)[0]
    facts = dict(re.findall(r"(\w+)=(\S+)", said))
    return f"{name} {facts.get('v', '?')} ({facts.get('malloc', '?')}), append-only file, fsync every second"


def _commit() -> str:
    here = str(Path(__file__).parent)
    commit = _output("git", "-C", here, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return os.environ.get("COMMIT", "unknown")
    return commit + " with changes" * bool(_output("git", "-C", here, "status", "--porcelain"))


def _output(*command: str) -> str:
    """The program's output; empty if the program is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
