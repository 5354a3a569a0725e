"""Score texts that overflow in float16 again in float32. The model is copied when the first such text comes."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from shardsift.worker.scoring.backends.packed import Packed
from shardsift.worker.scoring.backends.padded import Padded
from shardsift.worker.scoring.tokenizing.tokens import Tokens


class InFloat32:
    """Runs float32 copies of the models of `backends`, one text at a time. Returns their outputs side by side."""

    name = "float32"

    def __init__(self, backends: Sequence[Padded | Packed]) -> None:
        self._backends = backends

    def logits(self, batch: Tokens) -> torch.Tensor:
        return torch.cat([one.logits(batch) for one in self._copies], dim=1)

    @cached_property
    def _copies(self) -> list[Padded]:
        return [_copy(backend) for backend in self._backends]


def _copy(backend: Padded | Packed) -> Padded:
    model = copy.deepcopy(backend.model).float()
    if isinstance(backend, Padded):
        return replace(backend, model=model)
    model.set_attn_implementation("sdpa")  # the packed kernel is for 16 bits
    types = model.config.to_dict().get("type_vocab_size", 0) > 1
    cache = backend.family.has_cache
    return Padded(model=model, device=backend.device, pad_id=0, takes_token_types=types, has_cache=cache)
