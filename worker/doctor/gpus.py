"""The checks of GPUs and of the cores that feed them. Asks nvidia-smi, which needs no torch and no free GPU memory."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.process.children import Cores, usable_cores
from fleet.process.settings import Settings
from fleet.process.wording import counted
from worker.supervisor.places import visible_gpus

NVIDIA_SMI_SECONDS = 20.0  # it is slow if no persistence daemon keeps the driver loaded
_QUERY = "uuid,name,driver_version,memory.total,memory.free"
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")
_DRIVER_MEND = "Install the NVIDIA driver or load it again: `nvidia-smi` must list the GPU."
_NO_GPU_MEND = (
    "On a machine with a GPU, install the NVIDIA driver, and in a container the NVIDIA Container Toolkit. "
    "SHARDSIFT_DEVICE=cpu says that the CPU is meant."
)
_MEMORY_MEND = "End what uses the GPU, which `nvidia-smi` shows, or choose another with CUDA_VISIBLE_DEVICES."
_CORES_MEND = "Give the machine or the container more cores. One core tokenises about 1,500 rows/s."
_CORES_PER_GPU = 4
_ENOUGH_FREE_MIB, _LEAST_FREE_MIB = 8_192, 1_536


@dataclass(frozen=True, kw_only=True)
class Gpu:
    uuid: str
    name: str
    driver: str
    total_mib: int | None  # None if it shares the machine's memory
    free_mib: int | None


def gpu_checks(settings: Settings, *, cores: Cores | None = None) -> list[Check]:
    """GPU, its memory, and cores. Those of the GPU are left out if the settings choose another device."""
    machine = _Machine(cores or usable_cores())
    is_gpu_meant = settings.device == "auto" or settings.device.startswith("cuda")
    if not is_gpu_meant or platform.system() == "Darwin":
        return [Check(name="cores", look=lambda: machine.enough_cores(gpus=0), mend=_CORES_MEND)]
    seconds = NVIDIA_SMI_SECONDS + 1
    return [
        Check(name="gpu", look=machine.has_gpu, mend=_DRIVER_MEND, seconds=seconds),
        Check(name="gpu memory", look=machine.has_memory, mend=_MEMORY_MEND, needs=("gpu",)),
        Check(name="cores", look=machine.has_cores, mend=_CORES_MEND, seconds=seconds),
    ]


class _Machine:
    def __init__(self, cores: Cores) -> None:
        self._cores = cores

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that this process may use. Raises OSError if nvidia-smi does not run."""
        done = _nvidia_smi(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
        return _visible([_parsed(line) for line in done.stdout.splitlines() if line.count(",") >= _QUERY.count(",")])

    def has_gpu(self) -> Verdict:
        if not shutil.which("nvidia-smi"):
            return warning("There is no nvidia-smi: a CPU scores many times more slowly.", _NO_GPU_MEND)
        done = _nvidia_smi("-L")
        if done.returncode and not self.gpus:
            said = " ".join((done.stdout + done.stderr).split())
            return wrong(f"nvidia-smi finds no GPU: {said[:200]}", _DRIVER_MEND)
        if not self.gpus:
            return warning("nvidia-smi lists no GPU that this process may use.", _NO_GPU_MEND)
        names = ", ".join(dict.fromkeys(gpu.name for gpu in self.gpus))
        cuda = driver_cuda()
        supports = f" for CUDA {'.'.join(map(str, cuda))} and earlier" if cuda else ""
        return ok(f"{counted(len(self.gpus), 'GPU')}: {names}; driver {self.gpus[0].driver}{supports}.")

    def has_memory(self) -> Verdict:
        known = [gpu for gpu in self.gpus if gpu.free_mib is not None and gpu.total_mib is not None]
        if not known:
            return ok("The GPU shares the memory of the machine.")
        number, least = min(enumerate(known), key=lambda pair: pair[1].free_mib or 0)
        says = f"GPU {number} has {least.free_mib:,} of {least.total_mib:,} MiB free."
        if (least.free_mib or 0) < _LEAST_FREE_MIB:
            return wrong(says, _MEMORY_MEND)
        return ok(says) if (least.free_mib or 0) >= _ENOUGH_FREE_MIB else warning(says, _MEMORY_MEND)

    def has_cores(self) -> Verdict:
        try:
            gpus = len(self.gpus)
        except (OSError, subprocess.TimeoutExpired):
            gpus = 0
        return self.enough_cores(gpus=gpus)

    def enough_cores(self, *, gpus: int) -> Verdict:
        usable = self._cores.usable
        says = f"{usable} of {counted(os.cpu_count() or usable, 'core')} usable"
        if not gpus:
            return ok(f"{says}.")
        says = f"{says}, for {counted(gpus, 'GPU')}."
        return ok(says) if usable >= _CORES_PER_GPU * gpus else warning(says, _CORES_MEND)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports; None if nvidia-smi does not say."""
    try:
        found = _CUDA.search(_nvidia_smi().stdout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (int(found[1]), int(found[2])) if found else None


def _nvidia_smi(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=NVIDIA_SMI_SECONDS
    )


def _parsed(line: str) -> Gpu:
    uuid, name, driver, total, free = (part.strip() for part in line.split(",", 4))
    return Gpu(uuid=uuid, name=name, driver=driver, total_mib=_number(total), free_mib=_number(free))


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    """Those that this process may use, by number or id; all if they are named in another way, as MIG devices are."""
    names = visible_gpus()
    found = [gpu for name in names for number, gpu in enumerate(gpus) if _is(name, number, gpu)]
    return found or (gpus if names else [])


def _is(name: str, number: int, gpu: Gpu) -> bool:
    return name == str(number) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
