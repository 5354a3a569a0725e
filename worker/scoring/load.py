"""Load a sequence classifier onto the best device here, in the fastest way that gives its own scores."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch

from worker.scoring import NoRoom
from worker.scoring.backends import Backend
from worker.scoring.backends.cpu import (
    ONEDNN_FAMILIES,
    attend_by_products,
    fuse_linear_layers,
    products_are_faster,
)
from worker.scoring.backends.last_layer import reduce_last_decoder_layer, reduce_last_layer
from worker.scoring.backends.packed import FAMILIES, packed
from worker.scoring.backends.padded import compile_in_place, padded
from worker.scoring.device import (
    Candidate,
    candidates,
    choose_device,
    convert,
    default_batch_tokens,
    device_name,
    has_packed_attention,
)
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.parity import checked_scorer, first_faithful, float32_logits
from worker.scoring.parity_trial import sample_texts
from worker.scoring.saved_model import SavedModel, saved_model
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.sharded import Sharding
from worker.scoring.sharded.load import load_sharded

BackendName = Literal["auto", "padded"]
_PARITY_ROWS_CPU, _PARITY_ROWS_GPU = 16, 1_024  # a few seconds each


def load_scorer(
    model: str,
    dtype: str = "auto",
    *,
    revision: str | None = None,
    device: str = "auto",
    max_batch_tokens: int = 0,
    threads: int = 0,
    backend: BackendName = "auto",
    compile: bool = False,
    parity_rows: int | None = None,
    sharding: Sharding | None = None,
    load: Callable[[], SavedModel] | None = None,
) -> SequenceClassifier:
    """Load a Hub name or folder onto a device: `auto`, or torch's name of one. Code from the Hub is never run.

    `parity_rows` sample texts are scored both ways first; 0 leaves that out. Raises ModelError for what is no sequence
    classifier and for a device that is not here, and ParityError if what was asked for does not give the model's own scores.
    "auto" ends with float32 as transformers runs it, which is never refused.
    With `sharding` for several devices, the model is divided over them; `backend` and `compile` then do nothing.
    With `load`, the model is what that returns. It is called again for each candidate that is tried.
    """
    if threads:
        torch.set_num_threads(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    place = choose_device(device)
    if sharding and sharding.devices > 1:
        return load_sharded(
            model,
            dtype,
            revision,
            sharding=sharding,
            device=place,
            max_batch_tokens=max_batch_tokens,
            parity_rows=parity_rows,
        )
    fresh = load or (lambda: saved_model(model, revision))
    if parity_rows is None:
        parity_rows = _PARITY_ROWS_CPU if place.type == "cpu" else _PARITY_ROWS_GPU
    texts = sample_texts(parity_rows)
    held = [fresh()]  # for the first candidate
    model_type = held[0].model.config.model_type

    def loaded(candidate: Candidate) -> SequenceClassifier:
        saved = held.pop() if held else fresh()
        _move(model, saved.model, place)
        reference = float32_logits(replace(saved, model=saved.model.float()), texts) if texts else None
        convert(saved.model, candidate.dtype)
        return checked_scorer(
            model,
            saved,
            _backend(saved, candidate, place, asked=backend, compile=compile),
            candidate,
            reference=reference,
            device=place,
            max_batch_tokens=max_batch_tokens or default_batch_tokens(place),
        )

    return first_faithful(candidates(dtype, place, model_type, may_be_plain=not compile), loaded)


def _move(name: str, model: Any, device: torch.device) -> None:
    try:
        model.to(device)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise NoRoom(f"The model {name} does not fit in the memory of {device_name(device)}.") from error


def _backend(
    saved: SavedModel, candidate: Candidate, device: torch.device, *, asked: BackendName, compile: bool
) -> Backend:
    """Packed where device, format and model all can; else padded, which any model can. A plain candidate is left as it is."""
    model, model_type = saved.model, saved.model.config.model_type
    if candidate.is_plain:
        return padded(model, saved.tokenizer, device)
    can_pack = model_type in FAMILIES and candidate.dtype != "float32" and has_packed_attention(device)
    pack = can_pack and asked != "padded"
    first_only = saved.tokenizer.padding_side == "right" and reduce_last_layer(model)
    if compile:
        compile_in_place(model.base_model if pack else model, device)
    else:
        reduce_last_decoder_layer(model)
        if device.type == "cpu" and model_type in ONEDNN_FAMILIES:
            fuse_linear_layers(model.base_model)
            if products_are_faster(candidate.dtype):
                attend_by_products(model)
    if pack:
        return packed(model, device, first_only=first_only)
    return padded(model, saved.tokenizer, device)
