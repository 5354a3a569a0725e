"""The number of cores that a process counts on, on a machine with two threads a core and in a container with a quota."""

import os
from pathlib import Path

import pytest

from shardsift.fleet.process import cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight CPUs, of which this process may use six: the threads of three cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    monkeypatch.setattr(cores, "_THREADS_OF_CORE", f"{tmp_path}/{{}}")
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    for cpu in range(8):
        (tmp_path / str(cpu)).write_text(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "cpus", "physical"), [("max 100000", 6, 3), ("250000 100000", 3, 3), ("50000 100000", 1, 1)]
)
def test_the_cpu_affinity_and_the_quota_of_a_container_limit_cpus_and_physical_cores(
    machine: Path, quota: str, cpus: int, physical: int
) -> None:
    (machine / "cpu.max").write_text(f"{quota}\n")

    assert (cores.cpu_count(), cores.cpu_count(only_physical_cores=True)) == (cpus, physical)
