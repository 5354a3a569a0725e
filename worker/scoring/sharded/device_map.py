"""Divide a model by layers: accelerate's `device_map="auto"`. What no device has room for goes to the CPU, then to the disk."""

from collections import Counter
from typing import Any

import torch

from worker.scoring.sharded.sharding import Sharding


def placing(sharding: Sharding, device: torch.device, offload_folder: str) -> dict[str, Any]:
    """The arguments of `from_pretrained`. `offload_folder` must stay as long as the model."""
    return {
        "device_map": "auto",
        "max_memory": dict(sharding.max_memory or _free_memory(sharding.devices, device)),
        "offload_folder": offload_folder,
    }


def bytes_by_place(model: Any) -> dict[str, int]:
    """How many bytes of weights each device, the CPU and the disk have."""
    whole = {"": str(model.device)}  # on one device, accelerate has nothing to do
    places = {prefix: _name(place) for prefix, place in getattr(model, "hf_device_map", whole).items()}
    total: Counter[str] = Counter()
    for name, weights in model.named_parameters():
        total[_place_of(name, places)] += weights.numel() * weights.element_size()
    return dict(total)


def _free_memory(devices: int, device: torch.device) -> dict[int | str, int]:
    """Of the first GPUs, and of the CPU. Without this limit, accelerate would take every GPU that it sees."""
    from accelerate.utils import get_max_memory

    wanted = {"cpu", *(range(devices) if device.type == "cuda" else ())}
    return {place: size for place, size in get_max_memory().items() if place in wanted}


def _place_of(name: str, places: dict[str, str]) -> str:
    """The place of a weight: that of the longest prefix of its name. The prefix "" is the whole model."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), -1, -1))
    return next(places[prefix] for prefix in prefixes if prefix in places)


def _name(place: int | str) -> str:
    return f"cuda:{place}" if isinstance(place, int) else str(place)
