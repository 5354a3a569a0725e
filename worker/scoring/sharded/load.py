"""Load a classifier over several devices, and compare its scores with the plain model's in float32."""

import logging
import tempfile
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoConfig

from shardsift.worker.scoring import ParityError
from shardsift.worker.scoring.backends.padded import padded
from shardsift.worker.scoring.device import (
    Candidate,
    candidates,
    default_batch_tokens,
    keep_heads_in_float32,
    release_memory,
)
from shardsift.worker.scoring.parity import checked_scorer, first_faithful, float32_logits
from shardsift.worker.scoring.parity_trial import Logits, sample_texts
from shardsift.worker.scoring.saved_model import SavedModel, saved_model
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.sharded import Sharded, Sharding
from shardsift.worker.scoring.sharded.tensor import load_by_tensor

_PARITY_ROWS = 16  # in float32 the model may not fit on the devices, and offloaded layers are slow
# A large model leaves less memory for batches, and needs fewer tokens to keep the devices busy.
_MOST_BATCH_TOKENS = 8_192
_DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size")  # must be multiples of the ranks
logger = logging.getLogger(__name__)


def load_sharded(
    model: str,
    dtype: str,
    revision: str | None,
    *,
    first: str | None,
    sharding: Sharding,
    device: torch.device,
    max_batch_tokens: int,
    parity_rows: int | None,
) -> SequenceClassifier:
    """Load a model over several devices. See `load_classifier` for the arguments."""
    config = _config(model, revision)
    by_tensor = sharding.way != "layers" and _divides_by_tensor(model, config, sharding, device)
    texts = sample_texts(_PARITY_ROWS if parity_rows is None else parity_rows)
    reference = _reference(model, revision, texts, sharding, device) if texts else None
    max_batch_tokens = max_batch_tokens or min(_MOST_BATCH_TOKENS, default_batch_tokens(device))

    def loaded(one: Candidate) -> SequenceClassifier:
        load = load_by_tensor if by_tensor and not one.is_plain else load_by_layers
        saved, backend = load(model, one.dtype, revision, sharding, device)
        if one.way == "unpadded":
            backend = replace(backend, padded=replace(backend.padded, by_length=True))
        try:
            return checked_scorer(
                model, saved, backend, one, reference=reference, device=device, max_batch_tokens=max_batch_tokens
            )
        except ParityError:
            backend.close()
            raise

    may_be_plain = not by_tensor or sharding.way == "auto"
    model_type = getattr(config, "model_type", "")
    return first_faithful(candidates(dtype, device, model_type, first=first, may_be_plain=may_be_plain), loaded)


def _config(model: str, revision: str | None) -> Any:
    """Read the model's config. Returns None if transformers cannot read it, for example if the model type is unknown.

    Such a model may still load through an `Adapter` of `saved_model.py`.
    """
    try:
        return AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=False)
    except Exception:  # configs raise any error
        return None


def _divides_by_tensor(model: str, config: Any, sharding: Sharding, device: torch.device) -> bool:
    reason = why_not_tensor(config, sharding.devices, device)
    if reason:
        level = logging.WARNING if sharding.way == "tensor" else logging.INFO
        logger.log(level, "The model %s is divided by layers, not by tensor: %s.", model, reason)
    return reason is None


def why_not_tensor(config: Any, ranks: int, device: torch.device) -> str | None:
    if device.type != torch._C._get_accelerator().type:  # transformers always uses the machine's accelerator
        return f"transformers would not use the device {device.type}"
    if torch.distributed.is_initialized():
        return "this process has a model that is divided by tensor already"
    if not getattr(config, "base_model_tp_plan", None):
        return f"transformers has no tensor parallel plan for the family {getattr(config, 'model_type', 'of its own')}"
    for name in _DIVIDED:
        if (size := getattr(config, name, None)) and size % ranks:
            return f"its {name} of {size} cannot be divided by {ranks}"
    return None


def _reference(model: str, revision: str | None, texts: list[str], sharding: Sharding, device: torch.device) -> Logits:
    """Compute the logits of the plain model in float32, divided by layers.

    Layers that do not fit go to the CPU and the disk.
    """
    saved, backend = load_by_layers(model, "float32", revision, sharding, device)
    try:
        return float32_logits(saved, texts, device)
    finally:
        del saved
        backend.close()
        release_memory()


# Divide a model by layers with accelerate's `device_map="auto"`. Layers that do not fit go to the CPU, then the disk.


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
    devices_used = set(getattr(saved.model, "hf_device_map", {"": device}).values())  # no map if nothing was divided
    return saved, Sharded(padded=batches, division=f"layers over {len(devices_used)}", close=folder.cleanup)


def _free_memory(devices: int, device: torch.device) -> dict[int | str, int]:
    """Return the free bytes of the CPU and the first `devices` GPUs. Without such limits, accelerate uses every GPU."""
    from accelerate.utils import get_max_memory

    wanted = {"cpu", *(range(devices) if device.type == "cuda" else ())}
    return {place: size for place, size in get_max_memory().items() if place in wanted}
