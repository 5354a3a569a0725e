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
    OURS_FORWARD = "ours-forward"  # token ids in, scores out: what the tokenizer and the rest cost is the difference


class UnavailableError(Exception):
    """A contender cannot run on this machine; the message says why. The others continue without it."""


class Contender(Protocol):
    """A way of scoring, with its model loaded."""

    @property
    def dtype(self) -> str:
        """The number format its matrices are multiplied in."""

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        """What is done before the clock starts; the result is what is timed, and may be called again and again."""

    def tokens_sent(self) -> int:
        """Tokens that went through the model in the last call, padding included."""
