"""Find this machine's GPUs by nvidia-smi and the environment. Needs no torch."""

import os
import re
import shutil
import subprocess

VISIBLE = "CUDA_VISIBLE_DEVICES"
_SECONDS = 30.0  # nvidia-smi is slow if the driver is not loaded
_LISTED = re.compile(r"^(GPU|  MIG) .*\(UUID: (\S+)\)", re.MULTILINE)
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")


def nvidia_smi(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run nvidia-smi. Returns None if it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return None
    return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=_SECONDS)


def visible_gpus() -> list[str]:
    """List the GPUs or MIG slices that this process may use, by index or UUID. CUDA_VISIBLE_DEVICES may limit them."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() not in ("", "-1", "NoDevFiles")]
    listed = nvidia_smi("-L")
    gpus: list[list[str]] = []  # for each GPU: its UUID, then those of its slices
    for kind, uuid in _LISTED.findall(listed.stdout if listed else ""):
        gpus += [[]] if kind == "GPU" else []
        gpus[-1].append(uuid)
    if all(len(one) == 1 for one in gpus):
        return [str(number) for number in range(len(gpus))]
    return [uuid for one in gpus for uuid in one[1:] or one]


def driver_cuda() -> int | None:
    """Return the newest major version of CUDA that the driver supports. None if unknown."""
    answer = nvidia_smi()
    found = _CUDA.search(answer.stdout) if answer else None
    return int(found[1]) if found else None
