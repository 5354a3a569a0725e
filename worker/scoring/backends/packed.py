"""Run the texts of a batch end to end in one row, without padding. Supports the model families in FAMILIES.

The model runs over all tokens of a batch at once. Attention is limited to the tokens of the same text, and the head
gets one state per text. A test for each family checks that the logits equal those of padded batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionInterface

from shardsift.worker.scoring.device import to_device
from shardsift.worker.scoring.tokenizing.tokens import Tokens

PACKED_ATTENTION = "shardsift_packed"  # our name among transformers' attention implementations


# (query, key, value, query starts, key starts, most queries, most keys; scale, window size) → attended
Attention = Callable[..., torch.Tensor]


def flash_attention(*states_and_lengths: Any, scale: float | None, window_size: tuple[int, int]) -> torch.Tensor:
    """Compute attention within each text by torch's own kernel, which works only on CUDA and in 16-bit formats.

    `states_and_lengths` are query, key, value, query starts, key starts, most queries and most keys. The first three
    have shape (tokens, heads, width); keys and values may have fewer heads. The starts are the offset of each text,
    followed by the end of the last text. The most queries and keys are maxima per text. `window_size` is the number of
    keys that a query sees before and after it; -1 means all.
    """
    before, after = window_size
    is_causal = window_size == (-1, 0)
    # `torch.nn.attention.varlen` calls the same, but copies queries, keys and values when it is compiled.
    attended: torch.Tensor = torch.ops.aten._flash_attention_forward(
        *states_and_lengths,
        0.0,  # dropout
        is_causal,
        False,  # no debug mask
        scale=scale,
        window_size_left=before,
        window_size_right=after,
    )[0]
    return attended


# model, states (tokens, width), starts, index of the state that the head reads for each text → logits (texts, outputs)
HeadFunction = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Packed:
    model: Any
    device: torch.device
    family: "Family"
    first_position: int
    first_only: bool  # whether the last layer returns one state per text
    name: str = "packed"

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        inputs = {name: to_device(array, self.device) for name, array in self.inputs(batch, batch).items()}
        return self.run(inputs, longest=int(batch.lengths.max()))

    def inputs(self, batch: Tokens, filled: Tokens) -> dict[str, npt.NDArray[Any]]:
        """Make the argument `inputs` of `run`: arrays of shape (tokens,), (texts,) or (texts + 1,).

        The arrays include the dummy texts of `filled`, which is `batch` with dummy texts added, or `batch` itself.
        """
        positions = np.arange(len(filled.ids)) - np.repeat(filled.offsets[:-1], filled.lengths)
        places = self.family.places(batch, self.model.config.pad_token_id)
        inputs: dict[str, npt.NDArray[Any]] = {
            "ids": filled.ids,
            "positions": positions + self.first_position,
            "starts": filled.offsets.astype(np.int32),
            "places": np.pad(places, (0, len(filled) - len(batch))),
        }
        # Single texts have type 0, which is the model's default.
        if filled.types is not None and self.model.config.to_dict().get("type_vocab_size", 0) > 1:
            inputs["types"] = filled.types
        return inputs

    def run(self, inputs: Inputs, *, longest: int) -> torch.Tensor:
        """Compute float32 logits of shape (texts, outputs). No text has more than `longest` tokens."""
        starts, places, types = inputs["starts"], inputs["places"], inputs.get("types")
        states = self.model.base_model(
            input_ids=inputs["ids"][None],
            position_ids=inputs["positions"][None],
            starts=starts,
            places=places,
            longest=longest,
            **({} if types is None else {"token_type_ids": types[None].long()}),
            **({"use_cache": False} if self.family.has_cache else {}),
        ).last_hidden_state[0]
        if self.first_only:
            places = torch.arange(len(places), device=self.device)
        return self.family.head(self.model, states, starts, places).float()


def packed(
    model: Any, device: torch.device, *, first_only: bool = False, attention: Attention = flash_attention
) -> Packed:
    """Switch a model to packed attention. Raises KeyError for a family that is not in FAMILIES.

    Set `first_only` if `reduce_last_layer` has replaced the model's last layer.
    """
    family = FAMILIES[model.config.model_type]
    AttentionInterface.register(PACKED_ATTENTION, _interface_to(attention))
    model.set_attn_implementation(PACKED_ATTENTION)
    return Packed(
        model=model,
        device=device,
        family=family,
        first_position=positions_before_the_first(model),
        first_only=first_only,
    )


def positions_before_the_first(model: Any) -> int:
    """Return a text's first position: one after the padding index for RoBERTa and its descendants, otherwise 0."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and "position" in name and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def _interface_to(attention: Attention) -> Callable[..., tuple[torch.Tensor, None]]:
    """Adapt `attention` to the signature that transformers calls.

    The adapter's input has shape (1, heads, tokens, width), its output (1, tokens, heads, width).
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
        sliding_window: int | None = None,  # visible tokens before the query and, in an encoder, after it, plus one
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        seen = -1 if sliding_window is None else sliding_window - 1
        window = (seen, 0 if module.is_causal else seen)
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


def _first_places(batch: Tokens, _pad: int | None) -> npt.NDArray[np.int64]:
    return batch.offsets[:-1]


def _last_places(batch: Tokens, pad: int | None) -> npt.NDArray[np.int64]:
    """Find the last token of each text that is not the padding token `pad`. Returns positions in the packed batch.

    A text of padding tokens alone gets the position of its first token, as in transformers.
    """
    places = np.arange(len(batch.ids))
    starts = np.repeat(batch.offsets[:-1], batch.lengths)
    last: npt.NDArray[np.int64] = np.maximum.reduceat(np.where(batch.ids == pad, starts, places), batch.offsets[:-1])
    return last


def _of_texts(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return states[places].unsqueeze(1)


def _bert_head(model: Any, states: torch.Tensor, _starts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(model.bert.pooler(_of_texts(states, places)))
    return logits


def _roberta_head(model: Any, states: torch.Tensor, _starts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(_of_texts(states, places))
    return logits


def _distilbert_head(model: Any, states: torch.Tensor, _starts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.classifier(model.pre_classifier(states[places]).relu())
    return logits


def _modernbert_head(model: Any, states: torch.Tensor, starts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    if model.config.classifier_pooling == "cls":
        pooled = states[places]
    else:  # `unsafe` skips a check of the starts that would wait for the GPU
        pooled = torch.segment_reduce(states.float(), "mean", offsets=starts.long(), unsafe=True).to(states.dtype)
    logits: torch.Tensor = model.classifier(model.head(pooled))
    return logits


def _decoder_head(model: Any, states: torch.Tensor, _starts: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model.score(states[places])
    return logits


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family: how its head computes logits, and which token of a text the head reads."""

    head: HeadFunction
    places: Callable[[Tokens, int | None], npt.NDArray[np.int64]] = _first_places
    has_cache: bool = False  # whether to turn off a cache of keys and values, which only generation needs


_DECODER = Family(head=_decoder_head, places=_last_places, has_cache=True)
FAMILIES = {
    "bert": Family(head=_bert_head),
    "distilbert": Family(head=_distilbert_head),
    "roberta": Family(head=_roberta_head),
    "xlm-roberta": Family(head=_roberta_head),
    "modernbert": Family(head=_modernbert_head),
    "llama": _DECODER,
    "mistral": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "gemma": _DECODER,
    "gemma3_text": _DECODER,
}
