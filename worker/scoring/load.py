"""Load a sequence classifier onto the best device here, in the fastest way that gives its own scores."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedConfig

from worker.scoring.adapters import adapter_of
from worker.scoring.backends import Backend
from worker.scoring.backends.compiled import compile_in_place
from worker.scoring.backends.last_decoder_layer import reduce_last_decoder_layer
from worker.scoring.backends.last_layer import reduce_last_layer
from worker.scoring.backends.onednn import FAMILIES as FUSED_FAMILIES
from worker.scoring.backends.onednn import fuse_linear_layers
from worker.scoring.backends.packed import FAMILIES, packed, positions_before_the_first
from worker.scoring.backends.padded import Padded
from worker.scoring.device import choose_device, default_batch_tokens, device_name, has_packed_attention
from worker.scoring.errors import ModelError, NoRoom, ParityError
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.parity import check_parity, reference_logits
from worker.scoring.parity_trial import Logits, ParityTrial
from worker.scoring.precision import candidates, convert
from worker.scoring.sample import sample_texts
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.tokenizing.tokenize import TextTokenizer

BackendName = Literal["auto", "padded", "packed"]
_PARITY_ROWS_CPU, _PARITY_ROWS_GPU = 16, 1_024  # a few seconds each
_UNLIMITED = 1 << 30  # tokens


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model and its tokenizer as they were saved."""

    model: Any
    tokenizer: Any
    revision: str | None  # as it was asked for
    max_tokens: int
    outputs: int


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
) -> SequenceClassifier:
    """Load a Hub name or folder onto a device: `auto`, or torch's name of one. Code from the Hub is never run.

    `parity_rows` sample texts are scored both ways first; 0 leaves that out. Raises ModelError for what is no sequence
    classifier and for a device that is not here, and ParityError where the fast way does not give the model's own scores.
    """
    return scorer_of(
        model,
        lambda: _load(model, revision),
        dtype,
        device=device,
        max_batch_tokens=max_batch_tokens,
        threads=threads,
        backend=backend,
        compile=compile,
        parity_rows=parity_rows,
    )


def scorer_of(
    model: str,
    load: Callable[[], Loaded],
    dtype: str = "auto",
    *,
    device: str = "auto",
    max_batch_tokens: int = 0,
    threads: int = 0,
    backend: BackendName = "auto",
    compile: bool = False,
    parity_rows: int | None = None,
) -> SequenceClassifier:
    """As `load_scorer`, of the model that `load` loads. It is called again for each number format that is tried."""
    if threads:
        torch.set_num_threads(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    place = choose_device(device)
    if parity_rows is None:
        parity_rows = _PARITY_ROWS_CPU if place.type == "cpu" else _PARITY_ROWS_GPU
    options = _Options(
        device=place,
        backend=backend,
        compile=compile,
        max_batch_tokens=max_batch_tokens or default_batch_tokens(place),
        parity_rows=parity_rows,
    )
    loaded = load()
    *finer, last = candidates(dtype, place, loaded.model.config.model_type)
    for number_format in finer:
        try:
            return _scorer(model, loaded, number_format, options)
        except ParityError:
            loaded = load()
    return _scorer(model, loaded, last, options)


def _load(model: str, revision: str | None) -> Loaded:
    try:
        config, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
        adapter = adapter_of(config)
        classifier, own, of_tokenizer = AutoModelForSequenceClassification, {}, {}
        if adapter:  # a tokenizer is chosen by its own files, because its type may be unknown to transformers
            classifier, own = adapter.classifier(), {"config": adapter.config(config)}
            of_tokenizer = {"config": PreTrainedConfig()}
        loaded, info = classifier.from_pretrained(
            model, revision=revision, dtype="auto", output_loading_info=True, trust_remote_code=False, **own
        )
        tokenizer = AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=False, **of_tokenizer)
    except Exception as error:  # every model class has its own ways to fail on files that are not its own
        raise ModelError(f"The model {model} does not load as a sequence classifier: {error}") from error
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"The model {model} has no trained classification head (missing: {missing}). Fine-tune one first."
        )
    check_tokenizer(model, tokenizer)
    agree_on_padding(loaded, tokenizer)
    return Loaded(
        model=loaded.eval(),
        tokenizer=tokenizer,
        revision=revision,  # transformers 5 does not tell the commit, and in an old config.json is that of another model
        max_tokens=adapter.max_tokens(loaded.config) if adapter else tokens_taken(tokenizer, loaded),
        outputs=loaded.config.num_labels,
    )


def check_tokenizer(name: str, tokenizer: Any) -> None:
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # transformers makes one if there are no files
        raise ModelError(f"The model {name} has no tokenizer. Save its tokenizer files beside the model.")


def agree_on_padding(model: Any, tokenizer: Any) -> None:
    if tokenizer.pad_token is None:  # GPT-2's and Llama's have none; any will do, since attention leaves it out
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _scorer(name: str, loaded: Loaded, dtype: str, options: _Options) -> SequenceClassifier:
    """The scorer in one number format. Raises ParityError where its scores are not the model's own."""
    model, tokenizer, max_tokens = loaded.model, loaded.tokenizer, loaded.max_tokens
    texts = sample_texts(options.parity_rows)
    _move(name, model, options.device)
    reference = _reference(name, loaded, texts) if texts else None
    convert(model, dtype)
    scorer = SequenceClassifier(
        model=name,
        revision=loaded.revision,
        backend=_backend(model, tokenizer, dtype, options),
        tokenizer=TextTokenizer(tokenizer, max_tokens=max_tokens),
        device=options.device,
        dtype=dtype,
        outputs=loaded.outputs,
        max_batch_tokens=options.max_batch_tokens,
        config=model.config,
    )
    if reference is None:
        return scorer
    parity = ParityTrial(reference=reference, fast=scorer.score(texts).values)
    check_parity(parity, model=name, way=scorer.backend.name, dtype=dtype)
    return scorer.with_parity(parity)


def _move(name: str, model: Any, device: torch.device) -> None:
    try:
        model.to(device)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise NoRoom(f"The model {name} does not fit in the memory of {device_name(device)}.") from error


def _reference(name: str, loaded: Loaded, texts: list[str]) -> Logits:
    try:
        return reference_logits(
            loaded.model.float(), loaded.tokenizer, texts, max_tokens=loaded.max_tokens, outputs=loaded.outputs
        )
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise NoRoom(
            f"The model {name} does not fit here in float32, in which its scores are tried when a worker starts. "
            "SHARDSIFT_PARITY_ROWS=0 leaves the trial out."
        ) from error


def _backend(model: Any, tokenizer: Any, dtype: str, options: _Options) -> Backend:
    """Packed where device, format and model all can; else padded, which any model can."""
    can_pack = model.config.model_type in FAMILIES and dtype != "float32" and has_packed_attention(options.device)
    if options.backend == "packed" and not can_pack:
        raise ModelError(
            f"--backend packed needs a GPU since Ampere, 16 bits and a model of one of the families "
            f"{', '.join(FAMILIES)}; here are {options.device.type}, {dtype} and {model.config.model_type}. "
            "Leave it out, and the best that works is taken."
        )
    pack = can_pack and options.backend != "padded"
    first_only = tokenizer.padding_side == "right" and reduce_last_layer(model)
    if options.compile:
        compile_in_place(model.base_model if pack else model, options.device)
    else:
        reduce_last_decoder_layer(model)
        if options.device.type == "cpu" and model.config.model_type in FUSED_FAMILIES:
            fuse_linear_layers(model.base_model)
    if pack:
        return packed(model, options.device, first_only=first_only)
    return Padded(
        model=model,
        device=options.device,
        pad_id=int(tokenizer.pad_token_id or 0),
        pad_left=tokenizer.padding_side == "left",
        takes_token_types="token_type_ids" in tokenizer.model_input_names,
        has_cache="use_cache" in signature(model.forward).parameters,
    )


def tokens_taken(tokenizer: Any, model: Any) -> int:
    """What tokenizer and positions both allow."""
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    allowed = positions - positions_before_the_first(model) if positions > 0 else _UNLIMITED
    return int(min(tokenizer.model_max_length, allowed, _UNLIMITED))
