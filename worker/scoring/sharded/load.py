"""Load a classifier over several devices, and compare its scores with those that the model gives in float32 by layers."""

import tempfile

import torch

from worker.scoring import ParityError
from worker.scoring.backends.padded import padded
from worker.scoring.device import (
    Candidate,
    default_batch_tokens,
    formats,
    keep_heads_in_float32,
    release_memory,
)
from worker.scoring.parity import checked_scorer, first_faithful, float32_logits
from worker.scoring.parity_trial import Logits, sample_texts
from worker.scoring.saved_model import SavedModel, saved_model
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.sharded import Sharded, Sharding, chosen_way, model_config
from worker.scoring.sharded.tensor import load_by_tensor

PARITY_ROWS = 16  # in float32 the model may not fit on the devices, and offloaded layers are slow
_BATCH_TOKENS_GPU = (
    8_192  # a large model leaves less memory for batches, and its matrices are large enough with fewer tokens
)


def load_sharded(
    model: str,
    dtype: str,
    revision: str | None,
    *,
    sharding: Sharding,
    device: torch.device,
    max_batch_tokens: int,
    parity_rows: int | None,
) -> SequenceClassifier:
    """Load a model as `load_scorer` does, over several devices."""
    config = model_config(model, revision)
    way = chosen_way(sharding, model, config, device)
    texts = sample_texts(PARITY_ROWS if parity_rows is None else parity_rows)
    reference = _reference(model, revision, texts, sharding, device) if texts else None
    candidates = [
        Candidate(dtype=one, is_plain=one == "float32" and way == "layers")
        for one in formats(dtype, device, getattr(config, "model_type", ""))
    ]
    if candidates[-1].dtype == "float32" and way == "tensor" and sharding.way == "auto":
        candidates.append(Candidate(dtype="float32", is_plain=True))

    def loaded(one: Candidate) -> SequenceClassifier:
        load = load_by_tensor if way == "tensor" and not one.is_plain else load_by_layers
        saved, backend = load(model, one.dtype, revision, sharding, device)
        tokens = max_batch_tokens or min(_BATCH_TOKENS_GPU, default_batch_tokens(device))
        try:
            return checked_scorer(
                model, saved, backend, one, reference=reference, device=device, max_batch_tokens=tokens
            )
        except ParityError:
            backend.close()
            raise

    return first_faithful(candidates, loaded)


def _reference(model: str, revision: str | None, texts: list[str], sharding: Sharding, device: torch.device) -> Logits:
    """The logits of the plain model in float32. It is divided by layers, so it fits if the CPU or the disk has room."""
    saved, backend = load_by_layers(model, "float32", revision, sharding, device)
    try:
        return float32_logits(saved, texts, device)
    finally:
        del saved
        backend.close()
        release_memory()


# Divide a model by layers: accelerate's `device_map="auto"`. What no device has room for goes to the CPU, then to the disk.


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
    """The free memory of the first GPUs and of the CPU. Without this limit, accelerate would take every GPU that it sees."""
    from accelerate.utils import get_max_memory

    wanted = {"cpu", *(range(devices) if device.type == "cuda" else ())}
    return {place: size for place, size in get_max_memory().items() if place in wanted}
