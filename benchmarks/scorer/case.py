"""A case of the benchmark: a model, a distribution of text lengths, and the contenders. Does not import torch."""

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.scorer.contender import Name
from benchmarks.scorer.texts import Lengths


class Model(StrEnum):
    BERT_BASE = "bert-base"  # 12 layers of 768
    MINILM = "minilm"  # all-MiniLM-L6-v2's shape: 6 layers of 384
    DISTILBERT = "distilbert"  # 6 layers of 768
    BERT_LARGE = "bert-large"  # 24 layers of 1024
    TINY = "tiny"  # 2 layers of 32, to test the benchmark itself; not in any plan


@dataclass(frozen=True, kw_only=True)
class Case:
    model: Model
    lengths: Lengths
    rows: int
    repeats: int
    contenders: tuple[Name, ...]

    def __str__(self) -> str:
        return f"{self.model}, {self.lengths}, {self.rows:,} rows"
