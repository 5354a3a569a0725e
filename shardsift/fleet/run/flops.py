"""Count the floating point operations of a model for a text. Knows nothing of devices or clocks, and needs no torch.

Each layer multiplies every token by the matrices of its attention (query, key, value, output) and of its feed-forward
part. The attention also multiplies every token with every other token twice: once for the scores, once for the values.
A multiplication and its addition count as two operations. BART also has a decoder, which reads the text again and
whose layers have a second attention, to the encoder's tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Model types whose feed-forward part has a third matrix, the gate, which their configs do not mention.
_GATED = {
    "gemma",
    "gemma2",
    "gemma3_text",
    "llama",
    "mistral",
    "modernbert",
    "modernbert-decoder",
    "phi3",
    "qwen2",
    "qwen3",
}
_WITH_DECODER = {"bart", "mbart"}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The dimensions that determine a model's cost. The embeddings and the head are negligible."""

    layers: int
    hidden: int
    attention: int  # width of all heads' queries
    key_value: int  # width of all heads' keys; smaller if heads share them
    feed_forward: int
    gated: bool
    decoder_layers: int = 0  # in addition to `layers`, with the same widths

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """Read the shape from a transformers config. Raises ValueError if the layers of this model type are unknown.

        Raises AttributeError or TypeError if the config lacks a field.
        """
        if config.model_type in _WITH_DECODER:
            return _with_decoder(config)
        shares_keys = getattr(config, "num_key_value_heads", None) is not None
        if config.is_encoder_decoder or (shares_keys and config.model_type not in _GATED):
            raise ValueError(f"The layers of {config.model_type} are not known here.")
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            attention=width * config.num_attention_heads,
            key_value=width * (config.num_key_value_heads if shares_keys else config.num_attention_heads),
            feed_forward=getattr(config, "intermediate_size", None) or config.hidden_dim,
            gated=config.model_type in _GATED,
        )

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The matrices of one layer, as (rows, columns, count)."""
        return (
            (self.hidden, self.attention, 1),
            (self.hidden, self.key_value, 2),
            (self.attention, self.hidden, 1),
            (self.hidden, self.feed_forward, 1 + self.gated),
            (self.feed_forward, self.hidden, 1),
        )

    def flops(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the floating point operations for each text. `lengths` are in tokens.

        Also counts operations that a backend or a sliding window saves.
        """
        linear = sum(2 * rows * columns * count for rows, columns, count in self.matrices)
        attention = 4 * lengths * self.attention
        second = 2 * 4 * self.hidden * self.hidden  # matrices of the attention to the encoder
        per_token = self.layers * (linear + attention) + self.decoder_layers * (linear + second + 2 * attention)
        return np.asarray(lengths * per_token, dtype=np.float64)


def shape_of(config: Any) -> Shape | None:
    """Read the shape from a transformers config. None if it is not such a config, or its layers are unknown."""
    try:
        return Shape.of(config) if config is not None else None
    except (ValueError, AttributeError, TypeError):
        return None


def _with_decoder(config: Any) -> Shape:
    if config.encoder_ffn_dim != config.decoder_ffn_dim:
        raise ValueError(f"The layers of this {config.model_type} are not known here: its two halves differ.")
    return Shape(
        layers=config.encoder_layers,
        hidden=config.d_model,
        attention=config.d_model,
        key_value=config.d_model,
        feed_forward=config.encoder_ffn_dim,
        gated=False,
        decoder_layers=config.decoder_layers,
    )
