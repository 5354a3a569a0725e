"""The device that scores: which one, what it is fast at, how arrays get there. Knows no models."""

from typing import Any

import numpy.typing as npt
import torch

_PACKED_SINCE = (8, 0)  # flash attention's kernels want this CUDA capability


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
