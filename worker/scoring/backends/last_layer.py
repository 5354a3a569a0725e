"""Compute the last layer only for the first token of each text. The logits stay the same.

The heads of the families in `_FAMILIES` only read the first token's state, so the last layer needs just keys and values
of the other tokens. This saves 7 % of the work of BERT-base, and 14 % for a model of six layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


@dataclass(frozen=True, kw_only=True)
class _LayerParts:
    layers: Callable[[Any], torch.nn.ModuleList]  # encoder → its layers
    attention: Callable[[Any], Any]
    projections: tuple[str, str, str]  # names of the attention's layers for query, key and value
    rest: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]  # layer, attended, input states → output states


def reduce_last_layer(model: Any) -> bool:
    """Make the model's last layer compute only the first token's state. Returns False if its family is not supported.

    After this, `last_hidden_state` has one state per text.
    """
    parts = _FAMILIES.get(model.config.model_type)
    if parts is None:
        return False
    layers = parts.layers(model.base_model)
    layers[-1] = _FirstTokenLayer(layers[-1], parts)
    return True


class _FirstTokenLayer(torch.nn.Module):
    def __init__(self, layer: Any, parts: _LayerParts) -> None:
        super().__init__()
        self.layer = layer
        self.parts = parts

    def forward(
        self, states: torch.Tensor, attention_mask: torch.Tensor | None = None, *_: Any, **kwargs: Any
    ) -> torch.Tensor:
        first = _first(states, kwargs.get("places"))
        attention = self.parts.attention(self.layer)
        query, key, value = (
            _heads(getattr(attention, name)(projected), attention.attention_head_size)
            for name, projected in zip(self.parts.projections, (first, states, states), strict=True)
        )
        attend = ALL_ATTENTION_FUNCTIONS[attention.config._attn_implementation]
        mask = None if attention_mask is None else attention_mask[:, :, :1]
        attended, _ = attend(attention, query, key, value, mask, scaling=attention.scaling, first_only=True, **kwargs)
        return self.parts.rest(self.layer, attended.flatten(2), first)


def _first(states: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    """Select the states of the texts' first tokens.

    `places` has their positions in a packed batch; it is None for a padded batch. Returns shape (texts, 1, width) for a
    padded batch, and (1, texts, width) for a packed one.
    """
    return states[:, :1] if places is None else states[:, places]


def _heads(states: torch.Tensor, width: int) -> torch.Tensor:
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


# Compute BART's last decoder layer only for the position that its head reads. The logits stay the same.
#
# For a single query, even keys and values need not be computed. With keys K·x + k and values V·x + v of the states x:
# query · (K·x + k) = (Kᵀ·query) · x + a constant, which softmax ignores; and because attention weights add up to 1, the
# attended value is V · (weighted sum of x) + v. The rest of the layer costs almost nothing: this saves a tenth of BART.


def reduce_last_decoder_layer(model: Any) -> bool:
    """Make the last decoder layer of a BART compute only the position that the head reads. Returns whether it did.

    Other models, and quantised weights, stay unchanged. After this, every position of the last hidden state holds the
    state that the head reads.
    """
    if model.config.model_type != "bart":
        return False
    bart = model.base_model
    layer = bart.decoder.layers[-1]
    if type(layer.self_attn.k_proj.weight) is not torch.nn.Parameter:
        return False
    bart.decoder.layers[-1] = _OnePositionLayer(layer)
    bart.register_forward_pre_hook(_with_head_position, with_kwargs=True)
    return True


def _with_head_position(bart: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Add the argument `head_position`: the position of each text's last end-of-sequence token, which the head reads."""
    is_end = args[0].eq(bart.config.eos_token_id)
    last = is_end.shape[1] - 1 - is_end.int().flip(1).argmax(1)
    return args, kwargs | {"head_position": last}


class _OnePositionLayer(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.self_attention = _OneQueryAttention(layer.self_attn)
        self.self_attention_norm = layer.self_attn_layer_norm
        self.cross_attention = _OneQueryAttention(layer.encoder_attn)
        self.cross_attention_norm = layer.encoder_attn_layer_norm
        self.fc1, self.activation_fn, self.fc2 = layer.fc1, layer.activation_fn, layer.fc2
        self.final_norm = layer.final_layer_norm

    def forward(
        self,
        states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_states: torch.Tensor,
        *,
        encoder_attention_mask: torch.Tensor | None,
        head_position: torch.Tensor,
        **_: Any,
    ) -> torch.Tensor:
        texts, tokens, _width = states.shape
        seen = torch.arange(tokens, device=states.device) <= head_position[:, None]  # as in any decoder
        source = None if encoder_attention_mask is None else _seen_in(encoder_attention_mask[:, 0, 0])
        one = states[torch.arange(texts, device=states.device), head_position]
        one = self.self_attention_norm(one + self.self_attention(one, states, seen))
        one = self.cross_attention_norm(one + self.cross_attention(one, encoder_states, source))
        one = self.final_norm(one + self.fc2(self.activation_fn(self.fc1(one))))
        at_each: torch.Tensor = one[:, None].expand(-1, tokens, -1)
        return at_each


class _OneQueryAttention(torch.nn.Module):
    def __init__(self, attention: Any) -> None:
        super().__init__()
        heads = (attention.num_heads, attention.head_dim)
        self.scaling = attention.scaling
        self.q_proj, self.out_proj = attention.q_proj, attention.out_proj
        self.of_keys = _constant(attention.k_proj.weight.unflatten(0, heads))  # shape (heads, head's width, width)
        self.of_values = _constant(attention.v_proj.weight.unflatten(0, heads).mT)
        self.value_bias = _constant(attention.v_proj.bias)

    def forward(self, one: torch.Tensor, states: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Compute attention with one query for each text. Returns shape (texts, width).

        Shapes: `one`, the state of the query, (texts, width); `states` (texts, tokens, width); `seen`, a mask of the
        tokens to attend to, (texts, tokens). If `seen` is None, all tokens count.
        """
        heads = self.of_keys.shape[:2]
        query = (self.q_proj(one) * self.scaling).unflatten(1, heads).transpose(0, 1)
        scores = ((query @ self.of_keys).transpose(0, 1) @ states.mT).float()  # shape (texts, heads, tokens)
        if seen is not None:
            scores = scores.masked_fill(~seen[:, None], -torch.inf)
        attended = scores.softmax(2).to(states.dtype) @ states
        values = (attended.transpose(0, 1) @ self.of_values).transpose(0, 1).flatten(1)
        projected: torch.Tensor = self.out_proj(values + self.value_bias)
        return projected


def _seen_in(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dtype == torch.bool else mask == 0


def _constant(tensor: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(tensor.detach(), requires_grad=False)
