"""What each rank does to divide a model by tensor: join the group, load its part, compute its share of a batch.

All ranks must do the same in the same order, because each step waits for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

import torch

from worker.scoring.precision import keep_heads_in_float32
from worker.scoring.quiet import quiet_transformers
from worker.scoring.saved_model import SavedModel, saved_model
from worker.scoring.sharded.rank_place import RankPlace

Inputs = Mapping[str, Any]  # tensors on the CPU and plain values, as the model's forward takes them


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """What a rank is to load, and where it is in its group."""

    place: RankPlace
    model: str
    revision: str | None
    dtype: str

    def serve(self, connection: Connection, received: "SimpleQueue[Any]") -> NoReturn:
        """Compute each batch that rank 0 sends."""
        with quiet_transformers():
            part = join_and_load(self)
        connection.send(part.weight_bytes)
        while True:
            try:
                part.run(received.get())
            except ValueError as error:  # the same text fails in every rank, before or after they have met
                connection.send(str(error))
            else:
                connection.send(None)


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

    task.place.join()
    dtype = getattr(torch, task.dtype)
    saved = saved_model(
        task.model, task.revision, dtype=dtype, distributed_config=DistributedConfig(tp_size=task.place.ranks)
    )
    keep_heads_in_float32(saved.model)
    return Part(saved=saved, device=task.place.device)


def _here(weights: Any) -> torch.Tensor:
    """The part of a divided weight that this rank has; others it has whole."""
    local: torch.Tensor = weights.to_local() if hasattr(weights, "to_local") else weights
    return local
