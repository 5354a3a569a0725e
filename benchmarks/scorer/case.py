"""A case of the benchmark: a model, a distribution of text lengths, and the contenders. Does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.scorer.texts import Lengths

Values = npt.NDArray[np.float32]  # the raw score of each text, in the order of the texts


class Model(StrEnum):
    BERT_BASE = "bert-base"  # 12 layers of 768
    MINILM = "minilm"  # all-MiniLM-L6-v2's shape: 6 layers of 384
    DISTILBERT = "distilbert"  # 6 layers of 768
    BERT_LARGE = "bert-large"  # 24 layers of 1024
    TINY = "tiny"  # 2 layers of 32, to test the benchmark itself; not in any plan


class Name(StrEnum):
    REFERENCE = "reference"  # pandas and a transformers pipeline, float32, batches of 768
    REFERENCE_16BIT = "reference-16bit"  # the same in the device's 16-bit type
    DASK = "dask"  # the reference as a map over partitions
    CROSS_ENCODER = "cross-encoder"  # sentence_transformers.CrossEncoder.predict
    OURS = "ours"  # texts in, scores out
    OURS_SHARD = "ours-shard"  # a Parquet file in, Parquet files out, as a worker does it
    OURS_FORWARD = "ours-forward"  # token ids in, scores out; the difference is the cost of tokenizing and the rest


@dataclass(frozen=True, kw_only=True)
class Case:
    model: Model
    lengths: Lengths
    rows: int
    repeats: int
    contenders: tuple[Name, ...]

    def __str__(self) -> str:
        return f"{self.model}, {self.lengths}, {self.rows:,} rows"


class UnavailableError(Exception):
    """A contender cannot run on this machine. The message has the reason. The others continue without it."""


class Contender(Protocol):
    """A way of scoring, with its model loaded."""

    @property
    def dtype(self) -> str:
        """The number format of its matrix products."""

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        """Prepare before the clock starts. Returns the function to time, which may be called repeatedly."""

    def tokens_sent(self) -> int:
        """Return the number of tokens that went through the model in the last call, including padding."""
