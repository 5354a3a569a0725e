"""Ways to run a model over a batch of texts. All give the same logits; they differ in what they spend on padding."""

from typing import Protocol

import torch

from worker.scoring.tokenizing.tokens import Tokens


class Backend(Protocol):
    """One loaded model on one device."""

    @property
    def name(self) -> str:
        """What receipts call it."""

    def logits(self, batch: Tokens) -> torch.Tensor:
        """Float32, shape (texts, outputs), on the device; a GPU may still be at work on them."""
