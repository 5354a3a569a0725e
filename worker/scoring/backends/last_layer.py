"""Compute the last layer for the first token of each text only. The logits stay the same.

The heads of these families read the first token's state alone, so the last layer needs only keys and values of the
other tokens. This saves 7 % of the work of BERT-base and 14 % of that of a six-layer model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


@dataclass(frozen=True, kw_only=True)
class _LayerParts:
    """How to find the parts of a layer in one model family."""

    layers: Callable[[Any], torch.nn.ModuleList]  # of the encoder
    attention: Callable[[Any], Any]
    projections: tuple[str, str, str]  # attributes of the attention: query, key, value
    rest: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]  # layer, attended, input states → output states


def reduce_last_layer(model: Any) -> bool:
    """Replace the model's last layer, if its family is supported. Returns whether it did.

    From then on, `last_hidden_state` has one state per text.
    """
    parts = _FAMILIES.get(model.config.model_type)
    if parts is None:
        return False
    layers = parts.layers(model.base_model)
    layers[-1] = _FirstTokenLayer(layers[-1], parts)
    return True


class _FirstTokenLayer(torch.nn.Module):
    """Wraps the last layer."""

    def __init__(self, layer: Any, parts: _LayerParts) -> None:
        super().__init__()
        self.layer = layer
        self.parts = parts

    def forward(
        self, states: torch.Tensor, attention_mask: torch.Tensor | None = None, *_: Any, **kwargs: Any
    ) -> torch.Tensor:
        first = _first(states, kwargs.get("starts"))
        attention = self.parts.attention(self.layer)
        query, key, value = (
            _heads(getattr(attention, name)(projected), attention.attention_head_size)
            for name, projected in zip(self.parts.projections, (first, states, states), strict=True)
        )
        attend = ALL_ATTENTION_FUNCTIONS[attention.config._attn_implementation]
        mask = None if attention_mask is None else attention_mask[:, :, :1]
        attended, _ = attend(attention, query, key, value, mask, scaling=attention.scaling, first_only=True, **kwargs)
        return self.parts.rest(self.layer, attended.flatten(2), first)


def _first(states: torch.Tensor, starts: torch.Tensor | None) -> torch.Tensor:
    """The states of the first tokens: shape (texts, 1, width) if padded, (1, texts, width) if packed."""
    return states[:, :1] if starts is None else states[:, starts[:-1]]


def _heads(states: torch.Tensor, width: int) -> torch.Tensor:
    """Reshape (…, tokens, width of all heads) to (…, heads, tokens, width)."""
    return states.view(*states.shape[:-1], -1, width).transpose(1, 2)


def _rest_of_bert(layer: Any, attended: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    attended = layer.attention.output(attended, first)
    states: torch.Tensor = layer.output(layer.intermediate(attended), attended)
    return states


def _rest_of_distilbert(layer: Any, attended: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    attended = layer.sa_layer_norm(layer.attention.out_lin(attended) + first)
    states: torch.Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
    return states


_BERT = _LayerParts(
    layers=lambda encoder: encoder.encoder.layer,
    attention=lambda layer: layer.attention.self,
    projections=("query", "key", "value"),
    rest=_rest_of_bert,
)
_DISTILBERT = _LayerParts(
    layers=lambda encoder: encoder.transformer.layer,
    attention=lambda layer: layer.attention,
    projections=("q_lin", "k_lin", "v_lin"),
    rest=_rest_of_distilbert,
)
_FAMILIES = {"bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "distilbert": _DISTILBERT}
