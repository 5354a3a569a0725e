"""Pad every text of a batch to the longest. Works for any model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from worker.scoring.backends.compiled import is_compiled
from worker.scoring.device import to_device
from worker.scoring.tokenizing.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Padded:
    model: Any
    device: torch.device
    pad_id: int
    pad_left: bool  # as the tokenizer does, and the model expects
    takes_token_types: bool  # the model expects token type ids; they are all zero for single texts

    @property
    def name(self) -> str:
        return "padded, compiled" if is_compiled(self.model) else "padded"

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        lengths = batch.lengths
        places = np.arange(lengths.max())
        filled = places >= lengths.max() - lengths[:, None] if self.pad_left else places < lengths[:, None]
        padded = np.full(filled.shape, self.pad_id, dtype=np.int32)
        padded[filled] = batch.ids
        inputs = {"input_ids": to_device(padded, self.device).long()}
        if not filled.all():  # without a mask, attention takes its fast path
            inputs["attention_mask"] = to_device(filled, self.device).long()
        if self.takes_token_types:
            inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        run = self.model.forward if 1 in filled.shape else self.model  # torch would recompile for a size of 1
        logits: torch.Tensor = run(**inputs).logits
        return logits.float()
