"""A classifier that is divided over the devices of one worker, because it is larger than one of them.

`load.py`: accelerate puts whole layers on each device, and those that do not fit on the CPU and the disk. This works for any
model. The devices compute one after another. `load.py` also chooses between the two ways, and compares scores with the
model's own.
`tensor.py`: each device has a part of every matrix, and all compute at once. transformers must have a plan for the family:
Llama, Qwen, Gemma, Mistral and others have one, BERT has none.

On a CPU neither is faster than the plain model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from shardsift.worker.scoring.backends.padded import Padded
from shardsift.worker.scoring.tokenizing.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """The user's choice of how to divide a model, and what the process that loads it provides."""

    devices: int
    way: Literal["auto", "layers", "tensor"] = "auto"  # auto: tensor if it works for the model, otherwise layers
    max_memory: Mapping[int | str, int | str] | None = None  # accelerate's, for `layers`; None: what is free
    scratch_dir: Path | None = None  # for offloaded layers, and where ranks meet; None: the system's temporary folder
    on_lost_rank: Callable[[str], None] | None = None  # called once in a thread, with the reason; the next batch fails


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """The backend of a divided model: padded batches, whichever way it is divided."""

    padded: Padded
    division: str  # shown in receipts, because another division may change the last bits of a score
    close: Callable[[], None]  # end what the model needs: ranks, or the folder of offloaded layers

    @property
    def name(self) -> str:
        return f"{self.padded.name}, {self.division}"

    def logits(self, batch: Tokens) -> torch.Tensor:
        return self.padded.logits(batch)
