"""A classifier that is divided over the devices of one worker, because it is larger than one of them.

`load.py`: accelerate puts whole layers on each device, and on the CPU and the disk those that do not fit. This works for any
model. The devices compute one after another.
`tensor.py`: each device has a part of every matrix, and all compute at once. transformers must have a plan for the family:
Llama, Qwen, Gemma, Mistral and others have one, BERT has none.

Here are the options and the choice between the two. `load.py` also compares the scores with the model's own.
On a CPU neither is faster than the plain model.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig

from worker.scoring.backends.padded import Padded
from worker.scoring.tokenizing.tokens import Tokens

Way = Literal["layers", "tensor"]
_DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size")  # among the ranks, if a config has them
logger = logging.getLogger(__name__)


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


def chosen_way(sharding: Sharding, model: str, config: Any, device: torch.device) -> Way:
    """The way that works for this model, and a line in the log if that is not the one that was asked for."""
    if sharding.way == "layers":
        return "layers"
    reason = why_not_tensor(config, sharding.devices, device)
    if reason is None:
        return "tensor"
    level = logging.WARNING if sharding.way == "tensor" else logging.INFO
    logger.log(level, "The model %s is divided by layers, not by tensor: %s.", model, reason)
    return "layers"


def why_not_tensor(config: Any, ranks: int, device: torch.device) -> str | None:
    """Why a model cannot be divided by tensor among so many ranks; None if it can."""
    if device.type != torch._C._get_accelerator().type:  # transformers takes the machine's accelerator
        return f"transformers would not use the device {device.type}"
    if torch.distributed.is_initialized():
        return "this process has a model that is divided by tensor already"
    if not getattr(config, "base_model_tp_plan", None):
        return f"transformers has no tensor parallel plan for the family {getattr(config, 'model_type', 'of its own')}"
    for name in _DIVIDED:
        if (size := getattr(config, name, None)) and size % ranks:
            return f"its {name} of {size} cannot be divided by {ranks}"
    return None


def model_config(model: str, revision: str | None) -> Any:
    """None if transformers has no config of this type: an adapter may load the model, or `saved_model` says why it cannot."""
    try:
        return AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=False)
    except Exception:  # each kind of config has its own ways to fail
        return None
