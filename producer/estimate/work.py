"""The work of a run: its rows, and the tokens and operations of each scoring, from a sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from fleet.errors import ShardsiftError
from fleet.scoring import Scoring
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from producer.estimate.model_files import ModelFiles, read_model_files
from producer.estimate.sample import SampledShard
from producer.estimate.texts import scored_texts
from producer.estimate.tokens import (
    CHARACTERS_ERROR,
    CharacterCounter,
    Counter,
    TokenCounter,
    lengths_of,
)

# Standard errors within which the mean of 19 of 20 samples lies: Student's t of 2 to 8 values. Of many, it is 1.96.
_STANDARD_ERRORS = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36)
_OF_MANY = 2.0


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that is known up to this share of it."""

    value: float
    error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScoringWork:
    """What one scoring does with all rows. `operations` is None for a model whose layers are not known.

    `why_not_counted` is empty if the tokens were counted by the model's tokenizer.
    """

    scoring: Scoring
    tokens: Quantity
    operations: float | None
    why_not_counted: str = ""


def sampled_rows(spec: RunSpec, shards: Sequence[Shard], sample: Sequence[SampledShard]) -> Quantity | None:
    """The rows of all shards, from those of the sample and the sizes of the files. None if files do not say their rows."""
    if not sample or any(one.rows is None for one in sample):
        return None
    has_sizes = all(shard.size_bytes for shard in shards)
    sizes = [float(one.shard.size_bytes or 1) if has_sizes else 1.0 for one in sample]
    rates = [(one.rows or 0) / size for one, size in zip(sample, sizes, strict=True)]
    total = sum(shard.size_bytes or 1 for shard in shards) if has_sizes else len(shards)
    rows = total * sum(one.rows or 0 for one in sample) / sum(sizes)
    error = 0.0 if len(sample) == len(shards) else _error_of_mean(rates)
    return Quantity(value=min(rows, spec.limit_rows or rows), error=error)


def scoring_work(scoring: Scoring, rows: Quantity, sample: Sequence[SampledShard], *, shards: int) -> ScoringWork:
    """Of a run with these `rows` in so many `shards`. Raises ShardsiftError if it is not known what goes through the model."""
    files = read_model_files(scoring.model)
    counter, why_not_counted = _counter(files)
    of_shards = [_measured(one, scoring, counter, files) for one in sample if len(one.table)]
    if not of_shards:
        raise ShardsiftError("the shards that were looked at have no rows")
    tokens = np.concatenate([shard.tokens for shard in of_shards])
    error = 0.0 if len(tokens) >= rows.value else _error_of_mean(tokens)
    if len(sample) < shards:
        error = max(error, _error_of_mean([shard.tokens.mean() for shard in of_shards]))
    return ScoringWork(
        scoring=scoring,
        tokens=Quantity(
            value=rows.value * _mean([shard.tokens.mean() for shard in of_shards], of_shards),
            error=rows.error + error + (CHARACTERS_ERROR if why_not_counted else 0.0),
        ),
        operations=rows.value * _mean([shard.operations for shard in of_shards], of_shards) if files.shape else None,
        why_not_counted=why_not_counted,
    )


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """A sampled shard. `rows` is its weight: all its rows, or those of the sample."""

    rows: int
    tokens: npt.NDArray[np.int64]  # of each sampled row, 0 for one that is not scored
    operations: float  # of a row, on average; 0 if they are not known


def _measured(one: SampledShard, scoring: Scoring, counter: Counter, files: ModelFiles) -> _Measured:
    with translated(f"Reading {one.shard.uri}"):
        texts = scored_texts(one.table, scoring)
    lengths = lengths_of(texts, scoring, counter, max_tokens=files.max_tokens)
    sequences = np.fromiter(chain.from_iterable(lengths), np.int64)
    tokens = np.zeros(len(one.table), np.int64)
    tokens[: len(lengths)] = [sum(of_text) for of_text in lengths]
    operations = float(files.shape.flops(sequences).sum()) if files.shape else 0.0
    return _Measured(rows=one.rows or len(one.table), tokens=tokens, operations=operations / len(one.table))


def _mean(values: Sequence[float], of_shards: Sequence[_Measured]) -> float:
    """The mean over all rows, from that of each shard."""
    return float(np.average(values, weights=[shard.rows for shard in of_shards]))


def _counter(files: ModelFiles) -> tuple[Counter, str]:
    """What counts tokens, and why it is not the model's tokenizer."""
    if files.tokenizer is None:
        return CharacterCounter(), files.why
    try:
        return TokenCounter(files.tokenizer), ""
    except ImportError:
        return CharacterCounter(), "this machine has no tokenizers: pip install 'shardsift[estimate]'"
    except ValueError as error:
        return CharacterCounter(), str(error)


def _error_of_mean(values: Sequence[float] | npt.NDArray[np.int64]) -> float:
    """How far the mean of all may be from that of a sample, as a share of it."""
    mean = float(np.mean(values))
    if len(values) < 2 or not mean:
        return 0.0
    errors = _STANDARD_ERRORS[len(values) - 2] if len(values) - 2 < len(_STANDARD_ERRORS) else _OF_MANY
    return errors * float(np.std(values, ddof=1)) / math.sqrt(len(values)) / mean
