"""The interface of a contender. Knows nothing of the implementations."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]  # the raw score of each text, in the order of the texts


class Name(StrEnum):
    REFERENCE = "reference"  # pandas and a transformers pipeline, float32, batches of 768
    REFERENCE_16BIT = "reference-16bit"  # the same in the device's 16-bit type
    DASK = "dask"  # the reference as a map over partitions
    CROSS_ENCODER = "cross-encoder"  # sentence_transformers.CrossEncoder.predict
    OURS = "ours"  # texts in, scores out
    OURS_SHARD = "ours-shard"  # a Parquet file in, Parquet files out, as a worker does it
    OURS_FORWARD = "ours-forward"  # token ids in, scores out; the difference is the cost of tokenizing and the rest


class UnavailableError(Exception):
    """A contender cannot run on this machine, for the reason in the message. The others continue without it."""


class Contender(Protocol):
    """A way of scoring, with its model loaded."""

    @property
    def dtype(self) -> str:
        """The number format in which its matrices are multiplied."""

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        """Prepare before the clock starts. The result is timed, and may be called repeatedly."""

    def tokens_sent(self) -> int:
        """Tokens that went through the model in the last call, padding included."""
