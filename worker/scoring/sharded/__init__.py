"""A classifier that is divided over the devices of one worker, because it is too large for one device.

`load.py`: accelerate puts whole layers on each device, and the rest on the CPU and the disk. This works for any model,
but the devices compute one after another. `load.py` also chooses between the two ways, and compares scores with the
plain model's.
`tensor.py`: each device has a part of every matrix, and all compute at once. transformers must have a plan for the
family: Llama, Qwen, Gemma, Mistral and others have one, BERT has none.

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
    """How to divide a model over devices. In a worker, the settings choose `devices` and `way`."""

    devices: int
    way: Literal["auto", "layers", "tensor"] = "auto"  # auto: tensor if the model supports it, otherwise layers
    max_memory: Mapping[int | str, int | str] | None = None  # accelerate's argument for `layers`; None: the free memory
    scratch_dir: Path | None = None  # for offloaded layers and the ranks' meeting file; None: the temporary folder
    on_lost_rank: Callable[[str], None] | None = None  # called once, in a thread, with the reason


@dataclass(frozen=True, kw_only=True)
class Sharded:
    padded: Padded
    division: str  # for receipts, because another division may change the last bits of a score
    close: Callable[[], None]  # ends the ranks, or removes the folder of offloaded layers

    @property
    def name(self) -> str:
        return f"{self.padded.name}, {self.division}"

    def logits(self, batch: Tokens) -> torch.Tensor:
        return self.padded.logits(batch)
