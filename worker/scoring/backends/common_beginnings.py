"""Multiply once what the texts of a batch have in common at their beginnings, in BART's first layers. The logits stay the same.

Zero-shot classification scores a text with each label, so a batch has pairs that begin with the same tokens. Until the first
attention of the encoder, their states are equal too. In the decoder, where a token sees only those before it, they are equal
until the first attention to the encoder. Later no state is: every token of the encoder has seen the label. This saves at
most 5 % of the products of a base model, and half as much of a large one.
"""

from dataclasses import dataclass
from typing import Any

import torch

_QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")


def share_first_layers(model: Any) -> bool:
    """Replace linear layers of the first layers, if the model is a BART. Returns whether it did. Meant for CPUs."""
    if model.config.model_type != "bart":
        return False
    bart = model.base_model
    encoder, (decoder, *others) = bart.encoder.layers[0], bart.decoder.layers
    in_encoder, in_decoder = _Batch(), _Batch()
    _share(encoder.self_attn, _QUERY_KEY_VALUE, in_encoder)
    if others:  # otherwise the only layer is the last one, which is computed for one position
        _share(decoder.self_attn, (*_QUERY_KEY_VALUE, "out_proj"), in_decoder)
        _share(decoder.encoder_attn, ("q_proj",), in_decoder)

    def begin(_: Any, args: tuple[Any, ...]) -> None:
        as_above = _begins_as_above(args[0])
        in_encoder.places = _places(as_above)
        in_decoder.places = _places(_one_later(as_above))

    bart.register_forward_pre_hook(begin)
    return True


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Of the states of all texts, one text after another."""

    computed: torch.Tensor  # the places whose states are computed
    source: torch.Tensor  # for each place, the number of its state among the computed ones


@dataclass(kw_only=True)
class _Batch:
    """The batch that goes through the model."""

    places: _Places | None = None  # None: little is in common


class _Shared(torch.nn.Module):
    """Computes the product of one state for all that are equal."""

    def __init__(self, linear: torch.nn.Module, batch: _Batch) -> None:
        super().__init__()
        self.linear = linear
        self._batch = batch

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        places = self._batch.places
        products: torch.Tensor
        if places is None:
            products = self.linear(states)
            return products
        products = self.linear(states.flatten(0, 1)[places.computed])
        return products[places.source].view(*states.shape[:2], -1)


def _share(module: Any, names: tuple[str, ...], batch: _Batch) -> None:
    for name in names:
        setattr(module, name, _Shared(getattr(module, name), batch))


def _begins_as_above(ids: torch.Tensor) -> torch.Tensor:
    """Whether a text has the same tokens as the one before it, up to each place. Shape (texts, tokens)."""
    same = torch.zeros_like(ids, dtype=torch.bool)
    same[1:] = (ids[1:] == ids[:-1]).cumprod(1).bool()
    return same


def _one_later(as_above: torch.Tensor) -> torch.Tensor:
    """The same for the decoder, whose input is the text after a first token that all texts have."""
    later = as_above.roll(1, 1)
    later[:, 0] = True
    later[0] = False
    return later


def _places(as_above: torch.Tensor) -> _Places | None:
    """None if more than half of the states would be computed: to copy the others then takes as long as it saves."""
    texts, tokens = as_above.shape
    computed = (~as_above).flatten().nonzero().squeeze(1)
    if 2 * len(computed) > texts * tokens:
        return None
    number = torch.empty(texts * tokens, dtype=torch.long)
    number[computed] = torch.arange(len(computed))
    text = torch.arange(texts)[:, None].expand(texts, tokens)
    nearest = text.masked_fill(as_above, 0).cummax(0).values  # the text above, or this one, whose state is computed
    return _Places(computed=computed, source=number[(nearest * tokens + torch.arange(tokens)).flatten()])
