"""Count what a model has done on its device, and how long that would have taken at the device's matmul peak."""

import logging

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.peak import brief_matmul_peak, multiplied_in
from worker.scoring.scorer import ModelShape

logger = logging.getLogger(__name__)


class DeviceWork:
    """One thread adds the batches of a model, and others may read. `peak` is in operations per second.

    `seconds_at_peak` of some work, divided by the seconds that it took, is the model's share of the peak, which others
    call MFU: Chowdhery et al., PaLM, 2022, appendix B, https://arxiv.org/abs/2204.02311. It counts the operations that the
    texts' own tokens need, so padding and waiting lower the share, and work that a backend saves raises it.
    """

    def __init__(self, shape: ModelShape, peak: float) -> None:
        self.peak = peak
        self.seconds_at_peak = 0.0
        self._shape = shape

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        """A batch is done. `lengths` has the tokens of each text. A GPU may still be computing the last batches."""
        self.seconds_at_peak += float(self._shape.flops(lengths).sum()) / self.peak


def measured_work(shape: ModelShape | None, dtype: str, device: torch.device) -> DeviceWork | None:
    """A count that begins now. None for a model of unknown layers, and if the peak cannot be measured."""
    if shape is None:
        return None
    try:
        return DeviceWork(shape, brief_matmul_peak(shape, multiplied_in(dtype), device))
    except RuntimeError as error:  # no memory left, or a type that the device cannot multiply
        logger.warning("The matmul peak of this device is not known: %s", error)
        return None
