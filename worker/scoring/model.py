"""Load a sequence classifier onto the best device here, in the number format asked for."""

import os
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from worker.scoring.scorer import Scorer
from worker.scoring.tokenize import TextTokenizer

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HEADS = ("classifier", "score", "classification_head")  # transformers' names for the last layers of a classifier


class ModelError(Exception):
    """The model cannot be served; the message says why, and what would."""


def load_scorer(
    model: str,
    dtype: str,
    *,
    revision: str | None = None,
    max_batch_tokens: int = 0,
    threads: int = 0,
) -> Scorer:
    """Load a Hub name or folder. Raises ModelError for what is no sequence classifier. Code from the Hub is never run."""
    if threads:
        torch.set_num_threads(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    device = best_device()
    number_format = _number_format(dtype, device)
    try:
        loaded, info = AutoModelForSequenceClassification.from_pretrained(
            model, revision=revision, dtype=number_format, output_loading_info=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=False)
    except Exception as error:  # every model class has its own ways to fail on files that are not its own
        raise ModelError(f"The model {model} does not load as a sequence classifier: {error}") from error
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"The model {model} has no trained classification head (missing: {missing}). Fine-tune one first."
        )
    _keep_head_in_float32(loaded)
    if loaded.config.pad_token_id is None:
        loaded.config.pad_token_id = tokenizer.pad_token_id
    return Scorer(
        model=loaded.eval().to(device),
        tokenizer=TextTokenizer(tokenizer, max_tokens=_max_tokens(tokenizer, loaded.config)),
        device=device,
        dtype=number_format,
        outputs=loaded.config.num_labels,
        token_types="token_type_ids" in tokenizer.model_input_names,
        max_batch_tokens=max_batch_tokens or _batch_tokens(device),
    )


def best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _number_format(dtype: str, device: torch.device) -> torch.dtype:
    """The format named, or for "auto" 16 bits where the device multiplies them faster."""
    if dtype != "auto":
        return _DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if device.type == "mps":
        return torch.float16
    return torch.bfloat16 if _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    probes = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(probe() for probe in probes if probe)


def _batch_tokens(device: torch.device) -> int:
    """A CPU is fastest while a batch stays in its cache; a GPU wants many rows at once."""
    return 2_048 if device.type == "cpu" else 32_768


def _keep_head_in_float32(model: torch.nn.Module) -> None:
    """A logit of 3 in bfloat16 is known to 1/64 only; the head is small, so it stays in float32."""
    for name in _HEADS:
        head = getattr(model, name, None)
        if isinstance(head, torch.nn.Module):
            head.float().register_forward_pre_hook(_inputs_to_float32)


def _inputs_to_float32(_module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.float() if torch.is_tensor(value) and value.is_floating_point() else value for value in inputs)


def _max_tokens(tokenizer: Any, config: Any) -> int:
    """What tokenizer and positions both allow; RoBERTa's positions begin after its padding index."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"):
        positions -= config.pad_token_id + 1
    return int(min(tokenizer.model_max_length, positions, 1 << 30))
