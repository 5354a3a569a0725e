"""Ours as a worker uses it, without Parquet around it: `load_scorer`, then texts in and scores out. Knows no baselines."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.scorer.contender import Values
from worker.scoring import Scorer, Scores, load_scorer
from worker.scoring.batches import padded_tokens, plan_batches
from worker.scoring.load import BackendName

_TOKENIZER_SECONDS = 0.5  # of work at least, for a steady figure


@dataclass(frozen=True, kw_only=True)
class OurSettings:
    """The worker's options, under their names there."""

    dtype: str = "auto"
    backend: BackendName = "auto"
    compile: bool = False
    max_batch_tokens: int = 0
    threads: int = 0


def load_ours(model: Path, settings: OurSettings) -> Scorer:
    """Without the parity gate: random weights rank texts by chance, and the benchmark compares all scores itself."""
    return load_scorer(
        str(model),
        settings.dtype,
        backend=settings.backend,
        compile=settings.compile,
        max_batch_tokens=settings.max_batch_tokens,
        threads=settings.threads,
        parity_rows=0,
    )


class Ours:
    """Texts in, scores out."""

    def __init__(self, scorer: Scorer) -> None:
        self.dtype = scorer.dtype
        self._scorer = scorer
        self._tokens_sent = 0

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        column = pa.array(texts)
        self._tokens_sent = _tokens_sent(self._scorer, self._scorer.encode(column).tokens.lengths)
        return lambda: _values(self._scorer.score(column))

    def tokens_sent(self) -> int:
        return self._tokens_sent


class OursForward:
    """The texts are tokenized before the clock starts."""

    def __init__(self, scorer: Scorer) -> None:
        self.dtype = scorer.dtype
        self._scorer = scorer
        self._tokens_sent = 0

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        encoded = self._scorer.encode(pa.array(texts))
        self._tokens_sent = _tokens_sent(self._scorer, encoded.tokens.lengths)
        return lambda: _values(self._scorer.score_encoded(encoded))

    def tokens_sent(self) -> int:
        return self._tokens_sent


def _values(scores: Scores) -> Values:
    if scores.errors:
        row, reason = next(iter(scores.errors.items()))
        raise RuntimeError(f"Ours did not score {len(scores.errors)} rows; row {row}: {reason}.")
    return scores.values[:, 0]


def _tokens_sent(scorer: Scorer, lengths: npt.NDArray[np.int64]) -> int:
    """By the plan of the batches: counting in the model would be in the way of torch.compile."""
    if scorer.backend.name.startswith("packed"):
        return int(lengths.sum())
    batches = plan_batches(lengths, max_batch_tokens=scorer.max_batch_tokens)
    return sum(padded_tokens(lengths, batch) for batch in batches)


def tokenizer_rows_per_core_second(scorer: Scorer, texts: list[str]) -> float:
    """By the processor time of all threads, so that neither their number nor other work on the machine counts."""
    column = pa.array(texts)
    rows = 0
    start = time.process_time()
    while (seconds := time.process_time() - start) < _TOKENIZER_SECONDS:
        scorer.encode(column)
        rows += len(texts)
    return rows / seconds
