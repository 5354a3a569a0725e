"""Run the linear layers of an encoder on a CPU by oneDNN's fused product: weights in its own layout, bias and GELU included.

torch's linear layer reorders the weights in each call, copies the bias into place before the product, and GELU reads and
writes all states again. `--compile` saves the same and more, but takes a minute or two at each start.
"""

from typing import TypeGuard

import torch
from transformers.activations import GELUActivation

FAMILIES = ("bart", "bert", "deberta-v2", "distilbert", "modernbert", "roberta", "xlm-roberta")
_ROWS = 2_048  # of a typical batch: oneDNN chooses the layout of the weights for it. Others work too
_GELU_AFTER = (("dense", "intermediate_act_fn"), ("fc1", "activation_fn"), ("lin1", "activation"))  # sibling modules


def fuse_linear_layers(encoder: torch.nn.Module) -> bool:
    """Replace the linear layers, in float32 or bfloat16. Returns whether that works here.

    The model must be of one of FAMILIES: they only call their layers, and do not read the weights.
    """
    if not _works(next(encoder.parameters()).dtype):
        return False
    for module in list(encoder.modules()):
        followed = _followed_by_gelu(module)
        for name, child in list(module.named_children()):
            if _is_plain(child):
                setattr(module, name, _Linear(child, gelu=name in followed))
        for activation in followed.values():
            setattr(module, activation, torch.nn.Identity())
    return True


def plain_weights(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in torch's own layout."""
    return tensor.to_dense() if tensor.is_mkldnn else tensor


class _Linear(torch.nn.Module):
    """Computes what the linear layer computes, and GELU after it, if `gelu`."""

    def __init__(self, linear: torch.nn.Linear, *, gelu: bool) -> None:
        super().__init__()
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = linear.bias
        self._after: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, *self._after)
        return product


def _followed_by_gelu(module: torch.nn.Module) -> dict[str, str]:
    """The linear layers whose output goes to an exact GELU and nowhere else, and the name of that GELU."""
    children = dict(module.named_children())
    return {
        linear: gelu
        for linear, gelu in _GELU_AFTER
        if _is_plain(children.get(linear)) and isinstance(children.get(gelu), GELUActivation)
    }


def _is_plain(module: torch.nn.Module | None) -> TypeGuard[torch.nn.Linear]:
    """A linear layer whose weights are not quantised."""
    return type(module) is torch.nn.Linear and type(module.weight) is torch.nn.Parameter


def _works(dtype: torch.dtype) -> bool:
    """The operators are torch's own, but not documented. Only a trial shows whether this torch and this CPU have them."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        with torch.inference_mode():
            _Linear(torch.nn.Linear(16, 16, dtype=dtype), gelu=True)(torch.ones(1, 2, 16, dtype=dtype))
    except (AttributeError, RuntimeError):
        return False
    return True
