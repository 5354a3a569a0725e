"""How a model is to be divided over devices, and which of the two ways is taken."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, PreTrainedConfig

from worker.scoring.adapters import adapter_of
from worker.scoring.errors import ModelError

Way = Literal["layers", "tensor"]
_DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size")  # among the ranks, if a config has them
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """What the user chooses, and what the process that loads the model provides."""

    devices: int
    way: Literal["auto", "layers", "tensor"] = "auto"  # auto: tensor if it works for the model, otherwise layers
    max_memory: Mapping[int | str, int | str] | None = None  # accelerate's, for `layers`; None: what is free
    scratch_dir: Path | None = None  # for offloaded layers, and where ranks meet; None: the system's temporary folder
    on_lost_rank: Callable[[str], None] | None = (
        None  # called once in a thread, with the reason; None: the next batch fails
    )


def check_accelerate() -> None:
    """Raises ModelError if accelerate is not installed. Both ways need it: `tensor` for the scores it is compared with."""
    if find_spec("accelerate") is None:
        raise ModelError(
            "A model is divided over several devices with accelerate, which is not installed. "
            "Install it with: pip install 'shardsift[sharded]'"
        )


def chosen_way(sharding: Sharding, model: str, revision: str | None, device: torch.device) -> Way:
    """The way that works for this model, and a line in the log if that is not the one that was asked for."""
    if sharding.way == "layers":
        return "layers"
    reason = why_not_tensor(_config(model, revision), sharding.devices, device)
    if reason is None:
        return "tensor"
    level = logging.WARNING if sharding.way == "tensor" else logging.INFO
    logger.log(level, "The model %s is divided by layers, not by tensor: %s.", model, reason)
    return "layers"


def why_not_tensor(config: Any, ranks: int, device: torch.device) -> str | None:
    """Why a model cannot be divided by tensor among so many ranks; None if it can."""
    if not _has_distributed_config():
        return "this version of transformers has no DistributedConfig with tp_size"
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


def _config(model: str, revision: str | None) -> Any:
    """None for a model with an adapter, whose type transformers may not know."""
    try:
        raw, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
        return (
            None if adapter_of(raw) else AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=False)
        )
    except Exception as error:  # as in `saved_model`
        raise ModelError(f"The model {model} does not load as a sequence classifier: {error}") from error


def _has_distributed_config() -> bool:
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
    except ImportError:
        return False
    return "tp_size" in DistributedConfig.__dataclass_fields__
