"""Choose the device and the number format, and convert a model to them."""

import gc
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt
import torch

from shardsift.worker.scoring import DeviceUse, ModelError
from shardsift.worker.scoring.gpu_notes import GpuNotes
from shardsift.worker.scoring.gpus import VISIBLE, visible_gpus

_PACKED_SINCE = (8, 0)  # the lowest CUDA capability with flash attention kernels
_CHECK_GPU = (
    "Check nvidia-smi and the driver; set SHARDSIFT_DEVICE=cpu to score on the CPU, which is many times slower."
)
logger = logging.getLogger(__name__)


def choose_device(name: str) -> torch.device:
    """Find the device called `name`, or the best one for `auto`. Raises ModelError if the named device is missing."""
    if name == "auto":
        device = best_device()
        if device.type == "cpu":
            _check_no_gpu_is_missing()
        return device
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"There is no device {name} for torch {torch.__version__}: it finds {torch.cuda.device_count()} GPUs. "
            f"{_CHECK_GPU}"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError(f"There is no device mps for torch {torch.__version__} on this machine.")
    return device


def _check_no_gpu_is_missing() -> None:
    """Raise ModelError if the machine has a GPU that a torch with CUDA does not find.

    If torch is built without CUDA, which may be intended, only log a warning.
    """
    if not (sign := sign_of_a_gpu()):
        return
    if torch.version.cuda:
        raise ModelError(f"{sign}, but torch {torch.__version__} finds no GPU. {_CHECK_GPU}")
    logger.warning("%s, but torch %s is built for the CPU only; scoring on the CPU", sign, torch.__version__)


def sign_of_a_gpu() -> str | None:
    """Return evidence that this machine has a GPU, such as "nvidia-smi lists 2 GPUs". None if there is none."""
    try:
        gpus = visible_gpus()
    except (OSError, subprocess.TimeoutExpired):
        return None
    if VISIBLE in os.environ:
        return f"{VISIBLE}={os.environ[VISIBLE]}" if gpus else None
    return f"nvidia-smi lists {len(gpus)} GPUs" if gpus else None


def best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # names of one setting
_ALLOCATE = "import torch; torch.ones(1 << 24, device='cuda').sum().item()"


def choose_allocator(notes: GpuNotes) -> None:
    """Let torch's CUDA allocator use expandable segments if they work here. Does not change a setting of the user.

    Without them, batches of many sizes fragment a GPU's memory. On WSL and some virtual GPUs, allocations with them
    fail. Must be called before the first allocation. `notes` remembers the choice for later processes.
    """
    if any(name in os.environ for name in _ALLOCATOR):
        return
    settings = ("expandable_segments:True", "expandable_segments:False")
    chosen = notes.find("allocator") or next(filter(_allocates, settings), None)
    if chosen:  # otherwise allocations fail with either setting
        notes.store("allocator", chosen)
        os.environ[_ALLOCATOR[0]] = chosen


def _allocates(setting: str) -> bool:
    """Return whether GPU memory can be allocated with this setting of torch's allocator.

    Tries it in another process, because a process cannot change the setting after its first allocation.
    """
    if setting.endswith("True") and "microsoft" in platform.release().lower():  # WSL, where later allocations may fail
        return False
    environment = {**os.environ, _ALLOCATOR[0]: setting}
    return not subprocess.run([sys.executable, "-c", _ALLOCATE], env=environment, capture_output=True).returncode


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 is faster than float32 on this device, because it has tensor cores, AMX or AVX512-BF16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        probes = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
        return any(probe() for probe in probes if probe)
    return False


def has_packed_attention(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _PACKED_SINCE


def device_use(device: torch.device) -> DeviceUse:
    """Read the shares of an NVIDIA GPU's memory and time that are in use. A share is None if it cannot be read.

    For other devices, both shares are None, because a CPU's shares would be those of the whole machine.
    """
    if device.type != "cuda":
        return DeviceUse()
    return DeviceUse(
        memory_share=answer_of(lambda: _memory_share(device)),
        busy_share=answer_of(lambda: torch.cuda.utilization(device) / 100),  # by NVML
    )


def _memory_share(device: torch.device) -> float:
    free, total = torch.cuda.mem_get_info(device)
    return 1 - free / total


def answer_of(ask: Callable[[], float]) -> float | None:
    """Call `ask`, which reads a value from the GPU's driver. Returns None if it fails, for whatever reason.

    NVML needs the package nvidia-ml-py, which has its own errors, and does not report the use of a MIG slice. After a
    fault of the device, CUDA fails, too. The caller may be the thread that renews a lease, which an error must not end.
    """
    try:
        return ask()
    except Exception:
        return None


def default_batch_tokens(device: torch.device) -> int:
    """Return the default token budget of a batch.

    A CPU is fastest if the batch fits in its cache. A GPU needs many rows.
    """
    return 2_048 if device.type == "cpu" else 32_768


def release_memory() -> None:
    """Free the memory of models that are no longer used. Raises RuntimeError if a GPU has failed."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy an array to the device. A GPU copies while it computes the previous batch."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


# Families whose activations are small enough for float16.
_SAFE_IN_FLOAT16 = ("bert", "distilbert", "roberta", "xlm-roberta", "electra", "albert", "mpnet")


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Limits of the parity gate for a number format.

    `error` and `rounding` are relative to the largest absolute logit of the sample, or absolute if that is below 1.
    """

    error: float  # highest error of a logit
    rank_correlation: float  # lowest rank correlation (Spearman's)
    rounding: float  # the format's epsilon; errors up to this do not count as a change of rank


TOLERANCES = {
    "float32": Tolerance(error=1e-4, rank_correlation=0.999, rounding=torch.finfo(torch.float32).eps),
    "float16": Tolerance(error=5e-3, rank_correlation=0.99, rounding=torch.finfo(torch.float16).eps),
    "bfloat16": Tolerance(error=5e-2, rank_correlation=0.97, rounding=torch.finfo(torch.bfloat16).eps),
}


# plain: as transformers runs the model; unpadded: plain, with only texts of equal length in a batch
Way = Literal["graphed", "packed", "padded", "plain", "unpadded"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A number format and a way to run a model, for the parity gate to try."""

    dtype: str
    way: Way = "padded"

    @property
    def is_plain(self) -> bool:
        return self.way in ("plain", "unpadded")


def _formats(dtype: str, device: torch.device, model_type: str, first: str | None) -> list[str]:
    """List the number formats to try, best first. A `dtype` other than "auto" is the only one.

    "auto" stands for the 16-bit formats that the device is fast at, then float32. If the device is fast at `first`,
    "auto" stands for `first`, then float32.

    float16 is eight times as precise as bfloat16, but overflows at 65,504. So if the device is fast at both, float16 is
    tried only for families whose activations are known to be small.
    """
    if dtype != "auto":
        return [dtype]
    suits = {"float32": True, "float16": device.type != "cpu", "bfloat16": multiplies_bfloat16(device)}
    if first and suits.get(first):
        return list(dict.fromkeys([first, "float32"]))
    if device.type == "mps":
        return ["float16", "float32"]
    if not multiplies_bfloat16(device):
        return ["float16", "float32"] if device.type == "cuda" else ["float32"]
    if device.type == "cuda" and model_type in _SAFE_IN_FLOAT16:
        return ["float16", "bfloat16", "float32"]
    return ["bfloat16", "float32"]


def candidates(
    dtype: str,
    device: torch.device,
    model_type: str,
    *,
    first: str | None = None,
    ways: Sequence[Way] = ("padded",),
    may_be_plain: bool,
) -> list[Candidate]:
    """List the candidates, best first: each format with each of the `ways`. float32 is only combined with "padded".

    With `may_be_plain`, two float32 candidates are added at the end, unless `dtype` is a 16-bit format: "plain", the
    model as transformers runs it, and "unpadded", the same without padding. `first` is as for `load_classifier`.
    """
    formats = _formats(dtype, device, model_type, first)
    found = [Candidate(dtype=one, way=way) for one in formats for way in ways if one != "float32" or way == "padded"]
    if may_be_plain and formats[-1] == "float32":
        found += [Candidate(dtype="float32", way=way) for way in ("plain", "unpadded")]
    return found


def convert(model: Any, dtype: str) -> None:
    """Convert a model to a format, except for its head, which stays in float32."""
    model.to(getattr(torch, dtype))
    keep_heads_in_float32(model)


def keep_heads_in_float32(model: Any) -> None:
    """Convert the head to float32. A head whose weights are offloaded stays unchanged."""
    for head in _heads(model):
        if not any(weights.is_meta for weights in head.parameters()):
            head.float().register_forward_pre_hook(_inputs_to_float32)


def _heads(model: Any) -> list[torch.nn.Module]:
    """Return the layers that turn a text's state into logits.

    They stay in float32, because they are cheap, and bfloat16 would round a logit of 3 to a multiple of 1/64.
    """
    encoder = model.base_model
    heads = [part for part in model.children() if part is not encoder]
    return heads + ([encoder.pooler] if getattr(encoder, "pooler", None) is not None else [])


def _inputs_to_float32(_module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.float() if torch.is_tensor(value) and value.is_floating_point() else value for value in inputs)
