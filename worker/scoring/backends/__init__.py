"""Ways to run a model over a batch of texts. All give the same logits, but differ in speed."""

from typing import Protocol

import torch

from shardsift.worker.scoring.tokenizing.tokens import Tokens


class Backend(Protocol):
    """A loaded model on a device."""

    @property
    def name(self) -> str:
        """The name in receipts."""

    def logits(self, batch: Tokens) -> torch.Tensor:
        """Return float32 logits of shape (texts, outputs), on the device. A GPU may still be computing them."""
