"""Number formats: which to choose, how to convert a model to one, and how much its logits may then differ."""

from dataclasses import dataclass
from typing import Any

import torch

from worker.scoring.device import multiplies_bfloat16
from worker.scoring.scorer import ModelError

_SAFE_IN_FLOAT16 = (
    "bert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "electra",
    "albert",
    "mpnet",
)  # no large activations


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What the parity gate accepts. Errors are relative to the sample's largest logit, or absolute if that is below 1."""

    error: float  # highest of a logit
    rank_correlation: float  # lowest, Spearman's
    rounding: float  # the format's epsilon: errors up to this are rounding, and do not count as a change of rank


TOLERANCES = {
    "float32": Tolerance(error=1e-4, rank_correlation=0.999, rounding=torch.finfo(torch.float32).eps),
    "float16": Tolerance(error=5e-3, rank_correlation=0.99, rounding=torch.finfo(torch.float16).eps),
    "bfloat16": Tolerance(error=5e-2, rank_correlation=0.97, rounding=torch.finfo(torch.bfloat16).eps),
    "int8": Tolerance(error=2e-1, rank_correlation=0.9, rounding=2**-7),
    "fp8": Tolerance(error=2e-1, rank_correlation=0.9, rounding=torch.finfo(torch.float8_e4m3fn).eps),
}
_BASE = {"int8": torch.bfloat16, "fp8": torch.bfloat16}  # the format of the tensors that are not quantised
QUANTISED = tuple(_BASE)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A way to run a model, for the parity gate to try."""

    dtype: str
    is_plain: bool = False  # as transformers runs it, so that there is nothing to compare it with


def formats(dtype: str, device: torch.device, model_type: str) -> list[str]:
    """The formats to try, best first: the named one or, for "auto", a 16-bit one if the device is faster with it, then float32.

    float16 is eight times as precise as bfloat16 but overflows at 65,504. It is tried on models whose activations are
    known to be small, and given up if a logit of the sample is not finite.
    """
    if dtype != "auto":
        return [dtype]
    if device.type == "mps":
        return ["float16", "float32"]
    if not multiplies_bfloat16(device):
        return ["float16", "float32"] if device.type == "cuda" else ["float32"]
    if device.type == "cuda" and model_type in _SAFE_IN_FLOAT16:
        return ["float16", "bfloat16", "float32"]
    return ["bfloat16", "float32"]


def convert(model: Any, dtype: str) -> None:
    """Convert the encoder to a format. The head stays in float32.

    torchao does int8 and fp8, for weights and activations. Raises ModelError if it is not installed or the device does
    not support the format.
    """
    model.to(_BASE.get(dtype) or getattr(torch, dtype))
    keep_heads_in_float32(model)
    if dtype in _BASE:
        _quantize(model.base_model, dtype)


def keep_heads_in_float32(model: Any) -> None:
    """Convert the head. A part of it that is offloaded, which has no weights on a device, stays as it is."""
    for head in _heads(model):
        if not any(weights.is_meta for weights in head.parameters()):
            head.float().register_forward_pre_hook(_inputs_to_float32)


def _heads(model: Any) -> list[torch.nn.Module]:
    """The layers that turn a text's state into logits.

    They are cheap, and bfloat16 would round a logit of 3 to the nearest 1/64.
    """
    encoder = model.base_model
    heads = [part for part in model.children() if part is not encoder]
    return heads + ([encoder.pooler] if getattr(encoder, "pooler", None) is not None else [])


def _inputs_to_float32(_module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.float() if torch.is_tensor(value) and value.is_floating_point() else value for value in inputs)


def _quantize(encoder: torch.nn.Module, dtype: str) -> None:
    try:
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            Int8DynamicActivationInt8WeightConfig,
            PerRow,
            quantize_,
        )
    except ImportError as error:
        raise ModelError(
            f"--dtype {dtype} needs torchao. Install it with: pip install 'shardsift[quantize]'"
        ) from error

    config = (
        Int8DynamicActivationInt8WeightConfig()
        if dtype == "int8"
        else Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())
    )
    try:
        quantize_(encoder, config, filter_fn=_is_large_linear)
    except AssertionError as error:  # what torchao raises for an unsupported device
        raise ModelError(f"This device does not support --dtype {dtype}: {error} Use bfloat16 or float16.") from error


def _is_large_linear(module: torch.nn.Module, name: str) -> bool:
    return isinstance(module, torch.nn.Linear) and "pooler" not in name and module.in_features % 16 == 0
