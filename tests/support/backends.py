"""Backends that do something before each batch, such as wait for an event or change a file."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.tokenizing.tokens import Tokens


@dataclass
class Preceded:
    """A backend that calls `before` with each batch, then returns the logits of another backend. `before` may raise."""

    backend: Backend
    before: Callable[[Tokens], object]
    name: str = "stand-in"

    def logits(self, batch: Tokens) -> torch.Tensor:
        self.before(batch)
        return self.backend.logits(batch)
