"""What each rank does to divide a model by tensor: join the group, load its part, compute its share of a batch.

All ranks must do the same in the same order, because each step waits for all.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch

from worker.scoring.precision import keep_heads_in_float32
from worker.scoring.saved_model import SavedModel, saved_model

# Longer than any load: ranks read files at different speeds. The watchdog of a worker ends a rank that hangs much earlier.
_TIMEOUT = timedelta(hours=2)

Inputs = Mapping[str, Any]  # tensors on the CPU and plain values, as the model's forward takes them


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """What a rank is to load, and how it finds the others."""

    rank: int
    ranks: int
    meeting_file: str  # a file that does not exist yet, in a folder that only this user can read
    device_type: str
    threads: int  # of this rank, on a CPU
    model: str
    revision: str | None
    dtype: str

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.rank) if self.device_type == "cuda" else torch.device(self.device_type)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rank's part of a model."""

    saved: SavedModel
    device: torch.device

    @torch.inference_mode()
    def run(self, inputs: Inputs) -> Any:
        """The output of the whole model, which every rank gets."""
        here = {name: value.to(self.device) if torch.is_tensor(value) else value for name, value in inputs.items()}
        return self.saved.model(**here)

    @property
    def weight_bytes(self) -> int:
        return sum(_here(weights).nbytes for weights in self.saved.model.parameters())


def join_and_load(task: RankTask) -> Part:
    """Returns when all ranks have their part. Raises ModelError as `saved_model` does."""
    from transformers.distributed.configuration_utils import DistributedConfig

    _join(task)
    dtype = getattr(torch, task.dtype)
    saved = saved_model(
        task.model, task.revision, dtype=dtype, distributed_config=DistributedConfig(tp_size=task.ranks)
    )
    keep_heads_in_float32(saved.model)
    return Part(saved=saved, device=task.device)


def _join(task: RankTask) -> None:
    """Meet the other ranks. Gloo and NCCL connect the processes; gloo is kept from listening to other machines."""
    is_cuda = task.device_type == "cuda"
    if is_cuda:
        torch.cuda.set_device(task.device)
    else:
        torch.set_num_threads(task.threads)
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "nccl" if is_cuda else "gloo",
        init_method=f"file://{task.meeting_file}",
        rank=task.rank,
        world_size=task.ranks,
        device_id=task.device if is_cuda else None,
        timeout=_TIMEOUT,
    )


def _here(weights: Any) -> torch.Tensor:
    """The part of a divided weight that this rank has; others it has whole."""
    local: torch.Tensor = weights.to_local() if hasattr(weights, "to_local") else weights
    return local
