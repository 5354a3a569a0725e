"""The backend of a divided model: padded batches, whichever way the model is divided."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from worker.scoring.backends.padded import Padded
from worker.scoring.sharded.sharding import Way
from worker.scoring.tokenizing.tokens import Tokens

_SHOWN: dict[Way, str] = {"layers": "layers", "tensor": "tensor parallel"}


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """A model over `devices` devices. `weight_bytes` are those that each device or rank has."""

    padded: Padded
    way: Way
    devices: int
    weight_bytes: Mapping[str, int]
    close: Callable[[], None]  # end what the model needs: ranks, or the folder of offloaded layers

    @property
    def name(self) -> str:
        """In receipts, because another division may change the last bits of a score."""
        return f"{self.padded.name}, {_SHOWN[self.way]} over {self.devices}"

    def logits(self, batch: Tokens) -> torch.Tensor:
        return self.padded.logits(batch)
