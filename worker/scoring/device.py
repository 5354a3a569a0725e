"""The device that scores: which one, what it is fast at, how arrays get there. Knows no models."""

import logging
import os
import shutil
import subprocess
from typing import Any

import numpy.typing as npt
import torch

from worker.scoring.errors import ModelError

_PACKED_SINCE = (8, 0)  # flash attention's kernels want this CUDA capability
_ASK_SECONDS = 20  # nvidia-smi, which takes long where no daemon keeps the driver up
logger = logging.getLogger(__name__)


def choose_device(name: str) -> torch.device:
    """`auto`, or the device of that name. Raises ModelError rather than choose another."""
    if name == "auto":
        device = best_device()
        if device.type == "cpu":
            _check_no_gpu_is_lost()
        return device
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"There is no device {name} for torch {torch.__version__}: it finds {torch.cuda.device_count()} GPUs. {_LOOK}"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError(f"There is no device mps for torch {torch.__version__} on this machine.")
    return device


_LOOK = "Look at nvidia-smi and the driver; set SHARDSIFT_DEVICE=cpu to score on the CPU, which is many times slower."


def _check_no_gpu_is_lost() -> None:
    """A GPU that torch was built for and does not find is a fault of the machine, and no wish for the CPU.

    A torch without CUDA is such a wish, or a mistake: that is told, and the worker goes on.
    """
    if not (sign := _sign_of_a_gpu()):
        return
    if torch.version.cuda:
        raise ModelError(f"{sign}, but torch {torch.__version__} finds no GPU. {_LOOK}")
    logger.warning("%s, but torch %s is built for the CPU only, and scores there", sign, torch.__version__)


def _sign_of_a_gpu() -> str | None:
    """What says that this process should have a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible}" if visible.strip() not in ("", "-1", "NoDevFiles") else None
    if not shutil.which("nvidia-smi"):
        return None
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=_ASK_SECONDS
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    gpus = [line for line in listed.splitlines() if line.startswith("GPU ")]
    return f"nvidia-smi lists {len(gpus)} GPUs" if gpus else None


def best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def device_name(device: torch.device) -> str:
    """The GPU's name, or the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32 here: tensor cores, AMX or AVX512-BF16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        probes = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
        return any(probe() for probe in probes if probe)
    return False


def has_packed_attention(device: torch.device) -> bool:
    """Whether torch has a kernel here for texts of several lengths side by side."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _PACKED_SINCE


def default_batch_tokens(device: torch.device) -> int:
    """A CPU is fastest while a batch stays in its cache; a GPU wants many rows at once."""
    return 2_048 if device.type == "cpu" else 32_768


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy that a GPU fetches while it works on what it was given before."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
