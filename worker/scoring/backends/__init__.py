"""Ways to run a model over a batch of texts. All give the same logits; they differ in how much padding they compute."""

from typing import Protocol

import torch

from shardsift.worker.scoring.tokenizing.tokens import Tokens


class Backend(Protocol):
    """A loaded model on a device."""

    @property
    def name(self) -> str:
        """The name recorded in receipts."""

    def logits(self, batch: Tokens) -> torch.Tensor:
        """Float32 logits of shape (texts, outputs), on the device. A GPU may still be computing them on return."""
