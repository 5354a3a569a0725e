"""Divide a model by layers: accelerate's `device_map="auto"`. What no device has room for goes to the CPU, then to the disk."""

import tempfile

import torch

from worker.scoring.backends.padded import padded
from worker.scoring.precision import keep_heads_in_float32
from worker.scoring.saved_model import SavedModel, saved_model
from worker.scoring.sharded.sharding import Sharded, Sharding


def load_by_layers(
    model: str, dtype: str, revision: str | None, sharding: Sharding, device: torch.device
) -> tuple[SavedModel, Sharded]:
    folder = tempfile.TemporaryDirectory(prefix="shardsift-offload-", dir=sharding.scratch_dir)
    saved = saved_model(
        model,
        revision,
        dtype=getattr(torch, dtype),
        device_map="auto",
        max_memory=dict(sharding.max_memory or _free_memory(sharding.devices, device)),
        offload_folder=folder.name,
    )
    keep_heads_in_float32(saved.model)
    batches = padded(saved.model, saved.tokenizer, device)
    used = set(
        getattr(saved.model, "hf_device_map", {"": device}).values()
    )  # without a map, there was nothing to divide
    return saved, Sharded(padded=batches, division=f"layers over {len(used)}", close=folder.cleanup)


def _free_memory(devices: int, device: torch.device) -> dict[int | str, int]:
    """Of the first GPUs, and of the CPU. Without this limit, accelerate would take every GPU that it sees."""
    from accelerate.utils import get_max_memory

    wanted = {"cpu", *(range(devices) if device.type == "cuda" else ())}
    return {place: size for place, size in get_max_memory().items() if place in wanted}
