"""The CPU cores that this process may use, which a container or a batch system may limit."""

from loky import cpu_count


def usable_cores() -> int:
    """Cores allowed by the CPU affinity, the cgroup and LOKY_MAX_CPU_COUNT. 1 or more."""
    return int(cpu_count())


def usable_physical_cores() -> int:
    """The same, without the second thread of each core. torch is fastest with one thread per physical core."""
    return int(cpu_count(only_physical_cores=True))
