"""The CPU cores that this process may use, which a container or a batch system may limit."""

from dataclasses import dataclass

from loky import cpu_count


@dataclass(frozen=True, kw_only=True)
class Cores:
    """`usable` counts the second thread of a core too; `physical` does not. torch is fastest with a thread per physical core."""

    usable: int
    physical: int


def usable_cores() -> Cores:
    """The cores that the CPU affinity, the cgroup and LOKY_MAX_CPU_COUNT allow."""
    return Cores(usable=cpu_count(), physical=cpu_count(only_physical_cores=True))
