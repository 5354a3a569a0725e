"""Run an encoder's linear layers on a CPU by oneDNN's fused product, which includes bias and GELU.

torch's linear layer reorders the weights in each call and copies the bias into place before the product, and GELU reads
and writes all states again. torch.compile avoids this too, but takes a minute or two at each start.
"""

from typing import Any, TypeGuard

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.activations import GELUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

ONEDNN_FAMILIES = ("bart", "bert", "deberta-v2", "distilbert", "modernbert", "roberta", "xlm-roberta")
_ROWS = 2_048  # of a typical batch, for which oneDNN chooses the layout of the weights; other batches work too
_GELU_AFTER = (("dense", "intermediate_act_fn"), ("fc1", "activation_fn"), ("lin1", "activation"))  # (linear, GELU)


def fuse_linear_layers(encoder: torch.nn.Module) -> bool:
    """Replace the linear layers by fused ones. Returns False, without a change, if fused layers do not work here.

    Fused layers need float32 or bfloat16, and oneDNN's operators. They store the weights in another layout, so the model
    must be of one of `ONEDNN_FAMILIES`: their code calls linear layers but does not read the weights.
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
    return tensor.to_dense() if tensor.is_mkldnn else tensor


class _Linear(torch.nn.Module):
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
    """Find the linear layers whose output only goes to an exact GELU. Returns {layer's name: GELU's name}."""
    children = dict(module.named_children())
    return {
        linear: gelu
        for linear, gelu in _GELU_AFTER
        if _is_plain(children.get(linear)) and isinstance(children.get(gelu), GELUActivation)
    }


def _is_plain(module: torch.nn.Module | None) -> TypeGuard[torch.nn.Linear]:
    return type(module) is torch.nn.Linear and type(module.weight) is torch.nn.Parameter


def _works(dtype: torch.dtype) -> bool:
    """Return whether the fused oneDNN operators work in this format, by trying them.

    torch does not document the operators, so another version or CPU may lack them.
    """
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        with torch.inference_mode():
            _Linear(torch.nn.Linear(16, 16, dtype=dtype), gelu=True)(torch.ones(1, 2, 16, dtype=dtype))
    except (AttributeError, RuntimeError):
        return False
    return True


# Attention in bfloat16 on a CPU by batched products, for models whose linear layers are fused.
#
# Without AMX, torch's own kernel multiplies in bfloat16 at about half the speed of oneDNN's batched products. Here, the
# attention scores of a few texts at a time are computed, turned into shares (by softmax) in place, and multiplied with
# the values, all in the cache. Attention scores are rounded to bfloat16; torch's kernel rounds only the shares.

CPU_ATTENTION = "shardsift_cpu"  # our name among transformers' attention implementations
_SCORES_AT_ONCE = 1 << 19  # for all heads: 1 MiB, unless one text has more
_MOST_SCORES = 1 << 24  # for one text: 32 MiB, or 1,182 tokens with 12 heads; more go to torch's kernel


def products_are_faster(dtype: str) -> bool:
    """Return whether attention by batched matrix products is faster than torch's attention kernel in this format.

    That is so for bfloat16 on CPUs with AVX512-BF16 but without AMX.
    """
    has_amx, has_bfloat16 = (
        getattr(torch.cpu, name, bool) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    return dtype == "bfloat16" and bool(has_bfloat16()) and not has_amx()


def attend_by_products(model: Any) -> bool:
    """Switch a model of `ONEDNN_FAMILIES` to attention by batched matrix products (`attend`).

    Returns False, without a change, for DeBERTa, which has its own attention.
    """
    if model.config.model_type == "deberta-v2":
        return False
    AttentionInterface.register(CPU_ATTENTION, attend)
    AttentionMaskInterface.register(CPU_ATTENTION, _mask)
    model.set_attn_implementation(CPU_ATTENTION)
    return True


def attend(
    layer: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of each text's queries to its keys.

    Shapes: `query`, `key` and `value` (texts, heads, tokens, width); `mask`, which is added to the scores, (texts, 1,
    queries, keys); result (texts, queries, heads, width).
    """
    texts, heads, queries, width = query.shape
    keys = key.shape[2]
    if heads * queries * keys > _MOST_SCORES:
        return sdpa_attention_forward(layer, query, key, value, mask, scaling=scaling, is_causal=False)
    query = query * (width**-0.5 if scaling is None else scaling)
    attended = query.new_empty(texts, queries, heads, value.shape[3])
    texts_at_once = max(1, _SCORES_AT_ONCE // (heads * queries * keys))
    for first in range(0, texts, texts_at_once):
        part = slice(first, first + texts_at_once)
        shares = _shares(query[part], key[part], None if mask is None else mask[part])
        by_head = torch.bmm(shares, value[part].flatten(0, 1)).unflatten(0, (-1, heads))
        attended[part] = by_head.transpose(1, 2)
    return attended, None


def _shares(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Compute the softmax over the keys for each query: shape (texts * heads, queries, keys)."""
    texts, heads, queries, _width = query.shape
    scores = query.new_empty(texts, heads, queries, key.shape[2])
    scores = (scores if mask is None else scores.copy_(mask)).flatten(0, 1)
    scores.baddbmm_(query.flatten(0, 1), key.flatten(0, 1).mT, beta=0 if mask is None else 1)
    return torch.softmax(scores, 2, out=scores)


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Make transformers' attention mask, and halve its values, so that adding a score cannot overflow.

    In transformers, the values are 0 and the format's lowest number. The arguments are those of `eager_mask`.
    """
    mask: torch.Tensor | None = eager_mask(*args, **kwargs)
    return mask if mask is None else mask / 2
