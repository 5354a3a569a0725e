"""Pad every text of a batch to the longest one or, with `by_length`, run texts of equal length without padding.

Padding always follows the text, even if the tokenizer pads on the left, so that the text keeps its positions.
"""

import logging
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shardsift.worker.scoring.device import to_device
from shardsift.worker.scoring.tokenizing.tokens import Tokens

# Encoders in which every layer's attention sees all tokens of a text.
_MASKED_BY_KEY = {"albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"}
Filled = npt.NDArray[np.bool_]  # mask of the places of a padded batch that hold a token


@dataclass(frozen=True, kw_only=True)
class Padded:
    model: Any
    device: torch.device
    pad_id: int | None  # None: choose one for each batch, because the head reads a text's last token
    takes_token_types: bool  # whether the model expects token type ids, which are all 0 for single texts
    has_cache: bool  # whether to turn off a cache of keys and values, which only generation needs
    masks_keys: bool = False  # whether masks have the shape that attention takes; see `without_waiting`
    by_length: bool = False  # for models whose scores depend on padding

    @property
    def name(self) -> str:
        if self.by_length:
            return "equal lengths"
        return "padded, compiled" if is_compiled(self.model) else "padded"

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        if not self.by_length:
            return self._logits(batch)
        order = np.argsort(batch.lengths, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(batch.lengths[order])) + 1)
        logits = torch.cat([self._logits(batch.take(group)) for group in groups])
        return logits[to_device(np.argsort(order), self.device)]

    def _logits(self, batch: Tokens) -> torch.Tensor:
        lengths = batch.lengths
        filled = np.arange(lengths.max()) < lengths[:, None]
        padded = np.full(filled.shape, self._filler(batch, filled), dtype=np.int32)
        padded[filled] = batch.ids
        inputs: dict[str, Any] = {"input_ids": to_device(padded, self.device).long()}
        if not filled.all():  # without a mask, attention takes its fast path
            mask = to_device(filled, self.device)
            inputs["attention_mask"] = mask[:, None, None] if self.masks_keys else mask.long()
        if self.takes_token_types:
            inputs["token_type_ids"] = self._token_types(batch, filled)
        if self.has_cache:
            inputs["use_cache"] = False
        restore_attention(self.model)
        run = self.model.forward if 1 in filled.shape else self.model  # torch would recompile for a size of 1
        logits: torch.Tensor = run(**inputs).logits
        return logits.float()

    def _filler(self, batch: Tokens, filled: Filled) -> int:
        """Return the token to pad with: `pad_id`, if there is one.

        Otherwise, chooses a token that ends no text of the batch, and sets it in the model's config: the head finds a
        text's last token by comparing tokens with the padding token of the config.
        """
        if self.pad_id is not None:
            return self.pad_id
        lasts = set(batch.ids[batch.offsets[1:] - 1].tolist())
        filler = -1 if filled.all() else next(token for token in range(len(lasts) + 1) if token not in lasts)
        self.model.config.get_text_config().pad_token_id = filler
        return filler

    def _token_types(self, batch: Tokens, filled: Filled) -> torch.Tensor:
        types = np.zeros(filled.shape, dtype=np.int8)
        if batch.types is not None:
            types[filled] = batch.types
        return to_device(types, self.device).long()


def padded(model: Any, tokenizer: Any, device: torch.device, *, run: Any = None, by_length: bool = False) -> Padded:
    """Make the backend of a model and its tokenizer. If `run` is given, it is called instead of the model.

    With `by_length`, only texts of equal length run together, so that there is no padding. Otherwise, the padding token
    is the model's, not the tokenizer's, because the model's head looks for it.
    """
    config = model.config.get_text_config()
    own_pad_id = config.pad_token_id
    reads_last = own_pad_id == -1
    reads_last_place = getattr(config, "summary_type", None) == "last"  # XLNet's head reads even padding there
    return Padded(
        model=run or model,
        device=device,
        pad_id=(-1 if run else None) if reads_last else own_pad_id,
        # A filler token can be passed to the head only in this process.
        by_length=by_length or reads_last_place or bool(run and reads_last),
        takes_token_types="token_type_ids" in tokenizer.model_input_names,
        has_cache="use_cache" in signature(model.forward).parameters,
    )


def restore_attention(model: Any) -> None:
    """Restore BigBird's sparse attention. After a short text, the model permanently replaces it by full attention."""
    encoder: Any = getattr(model, "base_model", None)
    wanted = getattr(getattr(model, "config", None), "attention_type", None)
    if wanted != getattr(encoder, "attention_type", wanted):
        encoder.set_attention_type(wanted)


def without_waiting(batches: Padded) -> Padded:
    """Return a copy that passes masks of shape (texts, 1, 1, tokens), if the model's attention takes them.

    With a mask of shape (texts, tokens), transformers reads the mask's values, and so waits for the GPU in every
    batch.
    """
    config = batches.model.config.get_text_config()
    takes_keys = config.model_type in _MASKED_BY_KEY and config._attn_implementation == "sdpa"
    return replace(batches, masks_keys=takes_keys)


# Compile a model with torch.compile.

logger = logging.getLogger(__name__)


def compile_in_place(module: torch.nn.Module, device: torch.device) -> None:
    """Compile the model at its first call, for all input sizes, in a minute or two. Warns if that is not possible."""
    if not _compiles(device):
        return
    module.compile(dynamic=True)


def is_compiled(module: torch.nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def _compiles(device: torch.device) -> bool:
    """Return whether torch.compile works here. Only a trial shows whether the compilers and their dependencies work."""
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception as error:  # each missing part raises its own exception type
        reason = str(error).strip().splitlines()
        logger.warning("Continuing without torch.compile: %s", reason[0] if reason else type(error).__name__)
        return False
    return True
