"""Count the CPU cores that this process may use."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of the container
_THREADS_OF_CORE = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cpu_count(*, only_physical_cores: bool = False) -> int:
    """Count the CPUs that the CPU affinity and the cgroup's quota allow.

    If `only_physical_cores`, the CPUs of one core count once.
    """
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    cores = {_core_of(cpu) for cpu in cpus} if only_physical_cores else cpus
    return min(len(cores), _quota())


def _core_of(cpu: int) -> str:
    file = Path(_THREADS_OF_CORE.format(cpu))
    return file.read_text() if file.exists() else str(cpu)


def _quota() -> int:
    try:
        quota, period = map(int, _QUOTA.read_text().split())
    except (OSError, ValueError):  # no cgroup v2, or no limit ("max 100000")
        return 1 << 20
    return max(1, math.ceil(quota / period))
