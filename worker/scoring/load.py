"""Load a sequence classifier onto the best device, and run it in the fastest way that keeps its scores."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from shardsift.worker.scoring import DeviceFault, NoRoom
from shardsift.worker.scoring.backends.cpu import (
    ONEDNN_FAMILIES,
    attend_by_products,
    fuse_linear_layers,
    products_are_faster,
)
from shardsift.worker.scoring.backends.graphed import Graphed
from shardsift.worker.scoring.backends.in_float32 import InFloat32
from shardsift.worker.scoring.backends.last_layer import reduce_last_decoder_layer, reduce_last_layer
from shardsift.worker.scoring.backends.packed import FAMILIES, Packed, packed
from shardsift.worker.scoring.backends.padded import Padded, compile_in_place, padded, without_waiting
from shardsift.worker.scoring.device import (
    Candidate,
    Way,
    candidates,
    choose_allocator,
    choose_device,
    convert,
    default_batch_tokens,
    device_name,
    has_packed_attention,
    release_memory,
)
from shardsift.worker.scoring.forward import room_or
from shardsift.worker.scoring.gpu_notes import FORGETFUL, GpuNotes
from shardsift.worker.scoring.parity import checked_scorer, first_faithful, float32_logits
from shardsift.worker.scoring.parity_trial import Logits, sample_texts
from shardsift.worker.scoring.saved_model import SavedModel, saved_model
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.sharded import Sharding
from shardsift.worker.scoring.sharded.load import load_sharded
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses, processes_needed

BackendName = Literal["auto", "packed", "padded"]
_PARITY_ROWS_CPU, _PARITY_ROWS_GPU = 16, 1_024  # a few seconds each
_TIMED_ROWS = 256  # takes a few seconds with the largest models, at about 100 rows a second
logger = logging.getLogger(__name__)


def load_classifier(
    model: str,
    dtype: str = "auto",
    *,
    first: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    max_batch_tokens: int = 0,
    threads: int = 0,
    backend: BackendName = "auto",
    compile: bool = False,
    parity_rows: int | None = None,
    sharding: Sharding | None = None,
    load: Callable[[], SavedModel] | None = None,
    notes: GpuNotes = FORGETFUL,
) -> SequenceClassifier:
    """Load a Hub model or folder onto a device: `auto`, or torch's name of one. Never runs code from the Hub.

    Tries candidates (a number format and a way to run batches), best first, until one passes the parity gate. For the
    gate, the plain model also scores `parity_rows` sample texts; 0 disables the gate and graphs. Raises ModelError for
    anything but a sequence classifier and for a missing device. Raises ParityError if no candidate passes.
    With the `dtype` "auto", the format `first` is tried first if the device is fast at it. The last candidates are
    float32 as transformers runs it, and float32 without padding, which is refused only if a logit is not finite.
    With `sharding` for several devices, the model is divided over them, and `backend` and `compile` are ignored.
    `load`, if given, is called instead of reading `model`, once for each candidate that is tried.
    Raises DeviceLost if a GPU failed during a trial. With `notes`, the next process skips what made it fail.
    """
    if threads:
        torch.set_num_threads(min(threads, os.cpu_count() or 1))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    # cuDNN would plan its attention for each new shape of a batch, which took 6 s of the first window on an H100.
    torch.backends.cuda.enable_cudnn_sdp(False)
    target = choose_device(device)
    if target.type == "cuda":
        choose_allocator(notes)
    if sharding and sharding.devices > 1:
        return load_sharded(
            model,
            dtype,
            revision,
            first=first,
            sharding=sharding,
            device=target,
            max_batch_tokens=max_batch_tokens,
            parity_rows=parity_rows,
        )
    fresh = load or (lambda: saved_model(model, revision))
    if parity_rows is None:
        parity_rows = _PARITY_ROWS_CPU if target.type == "cpu" else _PARITY_ROWS_GPU
    held = [fresh()]  # for the first candidate
    model_type, read = held[0].model.config.model_type, held[0].read_tokenizer
    reference = _reference(held[0], parity_rows, target) if parity_rows else None
    budget = max_batch_tokens or default_batch_tokens(target)
    ways = _ways(model_type, target, asked=backend, may_graph=reference is not None)

    def loaded(candidate: Candidate) -> SequenceClassifier:
        saved = held.pop() if held else fresh()
        with room_or(_no_room(model, target)):
            convert(saved.model, candidate.dtype)
            saved.model.to(target)
        run = _backend(saved, candidate, target, budget=budget, compile=compile)
        scorer = checked_scorer(
            model, saved, run, candidate, reference=reference, device=target, max_batch_tokens=budget
        )
        if isinstance(run, Graphed):
            _check_faster(scorer, replace(scorer, backend=run.packed))
        if candidate.dtype != "float16":
            return scorer
        return replace(scorer, in_float32=InFloat32([run.packed if isinstance(run, Graphed) else run]))

    tried = candidates(dtype, target, model_type, first=first, ways=ways, may_be_plain=not compile)
    gpu = str(torch.cuda.get_device_properties(target)) if target.type == "cuda" else ""  # with its UUID
    best = first_faithful(tried, loaded, replace(notes, about=(model, str(revision), gpu)))
    return with_tokenizer_processes(best, read) if read and target.type == "cuda" else best


def _reference(saved: SavedModel, rows: int, device: torch.device) -> Logits:
    """Compute the plain model's logits of sample texts. Uses the CPU, and fewer texts, if `device` is too small."""
    plain = replace(saved, model=saved.model.float())
    try:
        with room_or(_no_room(saved.model.name_or_path, device)):
            plain.model.to(device)
        return float32_logits(plain, sample_texts(rows))
    except NoRoom:
        if device.type == "cpu":
            raise
    logger.warning("The model does not fit on %s in float32, so it is compared on the CPU.", device_name(device))
    plain.model.to("cpu")
    release_memory()
    return float32_logits(plain, sample_texts(min(rows, _PARITY_ROWS_CPU)))


def _no_room(name: str, device: torch.device) -> str:
    return f"The model {name} does not fit in the memory of {device_name(device)}."


def _ways(model_type: str, device: torch.device, *, asked: BackendName, may_graph: bool) -> tuple[Way, ...]:
    if asked == "padded" or model_type not in FAMILIES or not has_packed_attention(device):
        return ("padded",)
    return ("graphed", "packed", "padded") if asked == "auto" and may_graph else ("packed", "padded")


def _backend(
    saved: SavedModel, candidate: Candidate, device: torch.device, *, budget: int, compile: bool
) -> Padded | Packed | Graphed:
    model, model_type = saved.model, saved.model.config.model_type
    if candidate.is_plain:
        return padded(model, saved.tokenizer, device, by_length=candidate.way == "unpadded")
    first_only = reduce_last_layer(model)
    if candidate.way != "padded":
        packs = packed(model, device, first_only=first_only)
        return packs if candidate.way == "packed" else Graphed(packs, tokens=budget, longest=saved.max_tokens)
    if compile:
        compile_in_place(model, device)
    else:
        reduce_last_decoder_layer(model)
        if device.type == "cpu" and model_type in ONEDNN_FAMILIES:
            fuse_linear_layers(model.base_model)
            if products_are_faster(candidate.dtype):
                attend_by_products(model)
    return without_waiting(padded(model, saved.tokenizer, device))


def _check_faster(one: SequenceClassifier, other: SequenceClassifier) -> None:
    """Raise RuntimeError, with both times, if `other` scores the sample faster."""
    encoded = one.encode(sample_texts(_PARITY_ROWS_GPU))
    ours, theirs = (_seconds(partial(scorer.score_encoded, encoded)) for scorer in (one, other))
    if ours > theirs:
        raise RuntimeError(f"they take {ours:.2f} s for a sample, and {other.backend.name} ones {theirs:.2f} s")


def with_tokenizer_processes(scorer: SequenceClassifier, read: Callable[[], Any]) -> SequenceClassifier:
    """Return a scorer that tokenizes in several processes if a trial shows that one thread is too slow for the device.

    Otherwise, or if the processes fail, returns `scorer` itself. Each process calls `read` to read its tokenizer.
    """
    if not scorer.tokenizer.can_use_processes:
        return scorer
    texts = pa.array(sample_texts(_TIMED_ROWS), pa.large_string())
    encoded = scorer.encode(texts)
    encoding, scoring = _seconds(lambda: scorer.encode(texts)), _seconds(lambda: scorer.score_encoded(encoded))
    count = processes_needed(encoding, scoring, cores=torch.get_num_threads())  # this worker's share of the cores
    if not count:
        return scorer
    found = f"{len(texts)} texts are tokenized in {encoding:.3f} s and scored in {scoring:.3f} s"
    try:
        tokenizer = scorer.tokenizer.in_processes(TokenizerProcesses(read, count))
        if not np.array_equal(tokenizer.encode(texts).ids, scorer.tokenizer.encode(texts).ids):
            raise DeviceFault("The tokenizer's files have changed.")
    except (DeviceFault, OSError) as error:
        logger.warning("%s. One thread tokenizes, though: %s", found, error)
        return scorer
    logger.info("%s, so %d processes tokenize.", found, count)
    return replace(scorer, tokenizer=tokenizer)


def _seconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
