"""Our scorer as a worker uses it, but without Parquet. Knows nothing of the baselines."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.scorer.case import Values
from shardsift.worker.scoring import EncodedRows
from shardsift.worker.scoring.load import BackendName, load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokens import padded_tokens, plan_batches
from shardsift.worker.shard.pipelining import prefetched

WINDOW_ROWS = 8_192  # same as in shardsift.fleet.run.spec, whose import needs packages that a bare GPU machine may lack
_TOKENIZER_SECONDS = 0.5  # work at least this long, for a steady figure


@dataclass(frozen=True, kw_only=True)
class OurSettings:
    """The worker's options, with the same names."""

    dtype: str = "auto"
    backend: BackendName = "auto"
    compile: bool = False
    max_batch_tokens: int = 0
    threads: int = 0


def load_ours(model: Path, settings: OurSettings) -> SequenceClassifier:
    """Load without the parity gate, because it does not suit random weights. The benchmark compares all scores itself."""
    return load_classifier(
        str(model),
        settings.dtype,
        backend=settings.backend,
        compile=settings.compile,
        max_batch_tokens=settings.max_batch_tokens,
        threads=settings.threads,
        parity_rows=0,
    )


class Ours:
    """Score texts window by window, while the next window is tokenised."""

    def __init__(self, scorer: SequenceClassifier) -> None:
        self.dtype = scorer.dtype
        self._scorer = scorer
        self._tokens_sent = 0

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        column = pa.array(texts)
        self._tokens_sent = tokens_sent(self._scorer, encoded_windows(self._scorer, column))

        def run() -> Values:
            with prefetched(encoded_windows(self._scorer, column), "tokenizer") as windows:
                return _values(self._scorer, windows)

        return run

    def tokens_sent(self) -> int:
        return self._tokens_sent


class OursForward:
    """Score token ids. The texts are tokenised before the clock starts."""

    def __init__(self, scorer: SequenceClassifier) -> None:
        self.dtype = scorer.dtype
        self._scorer = scorer
        self._tokens_sent = 0

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        windows = list(encoded_windows(self._scorer, pa.array(texts)))
        self._tokens_sent = tokens_sent(self._scorer, windows)
        return lambda: _values(self._scorer, windows)

    def tokens_sent(self) -> int:
        return self._tokens_sent


def encoded_windows(scorer: SequenceClassifier, column: pa.Array) -> Iterator[EncodedRows]:
    return (scorer.encode(column[first : first + WINDOW_ROWS]) for first in range(0, len(column), WINDOW_ROWS))


def _values(scorer: SequenceClassifier, windows: Iterable[EncodedRows]) -> Values:
    scored = [scorer.score_encoded(window) for window in windows]
    for scores in scored:
        if scores.errors:
            row, reason = next(iter(scores.errors.items()))
            raise RuntimeError(f"Ours did not score {len(scores.errors)} rows of a window; row {row}: {reason}.")
    return np.concatenate([scores.values[:, 0] for scores in scored])


def tokens_sent(scorer: SequenceClassifier, windows: Iterable[EncodedRows]) -> int:
    """Count tokens from the plan of the batches, because a hook in the model would disturb torch.compile."""
    return sum(_tokens_of_window(scorer, window.sequences.batch_lengths) for window in windows)


def _tokens_of_window(scorer: SequenceClassifier, lengths: npt.NDArray[np.int64]) -> int:
    if scorer.backend.name.startswith("packed"):
        return int(lengths.sum())
    batches = plan_batches(lengths, max_batch_tokens=scorer.max_batch_tokens)
    return sum(padded_tokens(lengths, batch) for batch in batches)


def tokenizer_rows_per_core_second(scorer: SequenceClassifier, texts: list[str]) -> float:
    """Measure how many rows are tokenised in a second of processor time.

    This does not depend on the number of threads or on other work.
    """
    column = pa.array(texts)
    rows = 0
    start = time.process_time()
    while (seconds := time.process_time() - start) < _TOKENIZER_SECONDS:
        scorer.encode(column)
        rows += len(texts)
    return rows / seconds
