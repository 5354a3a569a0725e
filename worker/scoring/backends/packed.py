"""Run the texts of a batch end to end in one row, without padding. Supports the model families in FAMILIES.

The encoder runs over all tokens of a batch at once. Attention is limited to the tokens of the same text, and the head
gets one state per text. A test for each family checks that the logits equal those of padded batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface

from worker.scoring.backends.padded import is_compiled
from worker.scoring.device import to_device
from worker.scoring.tokenizing.tokens import Tokens

ATTENTION = "shardsift_packed"  # our name among transformers' attention implementations


# (query, key, value, query starts, key starts, most queries, most keys; scale, window size) → attended
Attention = Callable[..., torch.Tensor]


def flash_attention(*states_and_lengths: Any, scale: float | None, window_size: tuple[int, int]) -> torch.Tensor:
    """Attention within each text by torch's own kernel. Works on CUDA only, with 16-bit formats.

    `query`, `key` and `value` have shape (tokens, heads, width). The starts say where each text starts, and the end of the
    last one; the most queries and keys are those of any one text. `window_size` is of keys visible on either side; -1: all.
    """
    from torch.nn.attention.varlen import varlen_attn

    attended = varlen_attn(*states_and_lengths, scale=scale, window_size=window_size)
    assert isinstance(attended, torch.Tensor)  # it returns a tuple only if asked for more outputs
    return attended


Head = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]  # model, states (tokens, width), starts → logits


@dataclass(frozen=True, kw_only=True)
class Packed:
    model: Any
    device: torch.device
    head: Head
    first_position: int
    first_only: bool  # the last layer returns one state per text

    @property
    def name(self) -> str:
        return "packed, compiled" if is_compiled(self.model.base_model) else "packed"

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        lengths = batch.lengths
        positions = np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], lengths)
        positions += self.first_position
        starts = to_device(batch.offsets.astype(np.int32), self.device)
        states = self.model.base_model(
            input_ids=to_device(batch.ids[None, :], self.device),
            position_ids=to_device(positions[None, :], self.device),
            starts=starts,
            longest=int(lengths.max()),
            **self._token_types(batch),
        ).last_hidden_state[0]
        if self.first_only:
            starts = torch.arange(len(starts), device=self.device)
        return self.head(self.model, states, starts).float()

    def _token_types(self, batch: Tokens) -> dict[str, torch.Tensor]:
        """Token types of pairs, if the model has types. Single texts are of type 0, as is the model's default."""
        if batch.types is None or not self.model.config.to_dict().get("type_vocab_size", 0) > 1:
            return {}
        return {"token_type_ids": to_device(batch.types[None, :], self.device).long()}


def packed(
    model: Any, device: torch.device, *, first_only: bool = False, attention: Attention = flash_attention
) -> Packed:
    """Switch the model to packed attention. Raises KeyError for a family that is not in FAMILIES.

    Set `first_only` if `reduce_last_layer` has replaced the model's last layer.
    """
    head = FAMILIES[model.config.model_type]
    AttentionInterface.register(ATTENTION, _interface_to(attention))
    model.set_attn_implementation(ATTENTION)
    return Packed(
        model=model,
        device=device,
        head=head,
        first_position=positions_before_the_first(model),
        first_only=first_only,
    )


def positions_before_the_first(model: Any) -> int:
    """Positions of RoBERTa and its descendants start after the padding index; those of other models start at 0."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and "position" in name and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def _interface_to(attention: Attention) -> Callable[..., tuple[torch.Tensor, None]]:
    """Adapt `attention` to the signature that transformers calls.

    Its input has shape (1, heads, tokens, width), its output (1, tokens, heads, width).
    """

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: None,
        *,
        starts: torch.Tensor,
        longest: int,
        first_only: bool = False,  # `query` holds only the first token of each text
        scaling: float | None = None,
        sliding_window: int | None = None,  # one more than the tokens visible on either side
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        window = (-1, -1) if sliding_window is None else (sliding_window - 1, sliding_window - 1)
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        queries = (
            (torch.arange(len(starts), dtype=starts.dtype, device=starts.device), 1)
            if first_only
            else (starts, longest)
        )
        attended = attention(
            query, key, value, queries[0], starts, queries[1], longest, scale=scaling, window_size=window
        )
        return attended.unsqueeze(0), None

    return attend


def _first(states: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """The state of each text's first token, as a batch of one-token texts: shape (texts, 1, width)."""
    return states[starts[:-1]].unsqueeze(1)


def _bert_head(model: Any, states: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(model.bert.pooler(_first(states, starts)))
    return logits


def _roberta_head(model: Any, states: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(_first(states, starts))
    return logits


def _distilbert_head(model: Any, states: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(model.pre_classifier(_first(states, starts)[:, 0]).relu())
    return logits


def _modernbert_head(model: Any, states: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    if model.config.classifier_pooling == "cls":
        pooled = _first(states, starts)[:, 0]
    else:
        pooled = torch.segment_reduce(states.float(), "mean", offsets=starts.long()).to(states.dtype)
    logits: torch.Tensor = model.classifier(model.head(pooled))
    return logits


FAMILIES: dict[str, Head] = {
    "bert": _bert_head,
    "distilbert": _distilbert_head,
    "roberta": _roberta_head,
    "xlm-roberta": _roberta_head,
    "modernbert": _modernbert_head,
}
