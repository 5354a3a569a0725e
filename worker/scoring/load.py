"""Load a sequence classifier onto the best device here, in the fastest way that gives its own scores."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, kw_only=True)
class _Options:
    device: torch.device
    backend: BackendName
    compile: bool
    max_batch_tokens: int
    parity_rows: int


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
    load = load or (lambda: saved_model(model, revision))
    if parity_rows is None:
        parity_rows = _PARITY_ROWS_CPU if place.type == "cpu" else _PARITY_ROWS_GPU
    options = _Options(
        device=place,
        backend=backend,
        compile=compile,
        max_batch_tokens=max_batch_tokens or default_batch_tokens(place),
        parity_rows=parity_rows,
    )
    held = [load()]  # for the first candidate
    return first_faithful(
        candidates(dtype, place, held[0].model.config.model_type, may_be_plain=not compile),
        lambda candidate: _scorer(model, held.pop() if held else load(), candidate, options),
    )


def _scorer(name: str, loaded: SavedModel, candidate: Candidate, options: _Options) -> SequenceClassifier:
    """The scorer that runs in this way. Raises ParityError if its scores are not the model's own."""
    model, tokenizer = loaded.model, loaded.tokenizer
    texts = sample_texts(options.parity_rows)
    _move(name, model, options.device)
    reference = float32_logits(replace(loaded, model=model.float()), texts) if texts else None
    convert(model, candidate.dtype)
    backend = (
        padded(model, tokenizer, options.device)
        if candidate.is_plain
        else _backend(model, tokenizer, candidate.dtype, options)
    )
    return checked_scorer(
        name,
        loaded,
        backend,
        candidate,
        reference=reference,
        device=options.device,
        max_batch_tokens=options.max_batch_tokens,
    )


def _move(name: str, model: Any, device: torch.device) -> None:
    try:
        model.to(device)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise NoRoom(f"The model {name} does not fit in the memory of {device_name(device)}.") from error


def _backend(model: Any, tokenizer: Any, dtype: str, options: _Options) -> Backend:
    """Packed where device, format and model all can; else padded, which any model can."""
    can_pack = model.config.model_type in FAMILIES and dtype != "float32" and has_packed_attention(options.device)
    pack = can_pack and options.backend != "padded"
    first_only = tokenizer.padding_side == "right" and reduce_last_layer(model)
    if options.compile:
        compile_in_place(model.base_model if pack else model, options.device)
    else:
        reduce_last_decoder_layer(model)
        if options.device.type == "cpu" and model.config.model_type in ONEDNN_FAMILIES:
            fuse_linear_layers(model.base_model)
            if products_are_faster(dtype):
                attend_by_products(model)
    if pack:
        return packed(model, options.device, first_only=first_only)
    return padded(model, tokenizer, options.device)
