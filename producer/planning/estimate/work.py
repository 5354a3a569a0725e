"""The work of a run: its rows, and the tokens and operations of each scoring, from a sample."""

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.errors import ShardError, ShardsiftError
from fleet.inputs.formats import has_footer
from fleet.inputs.input_file import IgnoredBadRows, InputFile
from fleet.inputs.opening import open_input
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, Shard
from fleet.run.text import parts_of
from fleet.storage.errors import translated
from producer.planning.estimate.model_files import ModelFiles, read_model_files

# Read a few rows of a few shards. The same input gives the same ones.

LOCAL_SHARDS, REMOTE_SHARDS = 8, 4  # a file is opened for each, and reading ahead takes 32 MiB of a remote one
MOST_ROWS = 1_000  # of all shards together
_THREADS = 8
_STEP_ROWS = 256  # decoded at once


@dataclass(frozen=True, kw_only=True)
class SampledShard:
    """The first rows of a shard, with the columns that are scored. `rows` are all that it has, if its footer says it."""

    shard: Shard
    rows: int | None
    table: pa.Table


def sample_shards(spec: RunSpec, shards: Sequence[Shard]) -> tuple[SampledShard, ...]:
    """A random sample of the shards, and the first rows of each. Opens a few files, and reads MOST_ROWS rows.

    Raises ShardError or TransientError if one cannot be read, or has other columns.
    """
    most = LOCAL_SHARDS if all(shard.uri.startswith("file:") for shard in shards) else REMOTE_SHARDS
    chosen = random.Random(spec.input_revision).sample(list(shards), min(most, len(shards)))
    if not chosen:
        return ()
    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(partial(_sampled, spec=spec, most_rows=MOST_ROWS // len(chosen)), chosen))


def _sampled(shard: Shard, *, spec: RunSpec, most_rows: int) -> SampledShard:
    with open_input(shard.uri, spec.columns, only=spec.only_columns) as file, translated(f"Reading {shard.uri}"):
        rows = file.count_rows(shard.row_limit) if has_footer(shard.uri) else None
        wanted = min(most_rows, most_rows if shard.row_limit is None else shard.row_limit)
        columns = _scored_columns(spec)
        if missing := [name for name in columns if name not in file.schema.names]:
            raise ShardError(
                f'Shard {shard.name} has no column "{missing[0]}"; it has: {", ".join(file.schema.names)}.'
            )
        return SampledShard(shard=shard, rows=rows, table=_first_rows(file, columns, wanted))


def _first_rows(file: InputFile, columns: list[str], wanted: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    missing = wanted
    for batch in file.batches(columns, bad=IgnoredBadRows(), most_rows=_STEP_ROWS, use_threads=False):
        batches.append(batch.slice(0, missing))
        missing -= len(batches[-1])
        if not missing:
            break
    return pa.Table.from_batches(batches, schema=pa.schema([file.schema.field(name) for name in columns]))


def _scored_columns(spec: RunSpec) -> list[str]:
    names = (
        name
        for scoring in spec.scorings
        for name in (*scoring.text_columns, scoring.text_pair_column)
        if name is not None
    )
    return list(dict.fromkeys(names))


# The texts of sampled rows, put together as in `worker/shard/texts.py`.

_BETWEEN = "\n\n"  # joined columns
Text = tuple[str, ...]  # one text, or the two of a pair


def scored_texts(rows: pa.Table, scoring: Scoring) -> list[Text]:
    """The texts, or pairs of texts, that go through the model: rows without one are left out."""
    columns = {name: _as_texts(rows.column(name)) for name in rows.column_names}
    wanted = [columns[name] for name in scoring.text_columns]
    pair = scoring.text_pair_column
    texts = []
    for row in range(len(rows)):
        values = [column[row] for column in wanted]
        parts = (_text(values, scoring), *([columns[pair][row]] if pair else []))
        if all(part is not None and part.strip() for part in parts):
            texts.append(tuple(part for part in parts if part is not None))
    return texts


def _text(values: list[str | None], scoring: Scoring) -> str | None:
    if all(value is None for value in values):
        return None
    if scoring.text_template is None:
        return _BETWEEN.join(value for value in values if value and value.strip())
    of_columns = dict(zip(scoring.text_columns, values, strict=True))
    return "".join(
        literal + ((of_columns[name] or "") if name else "") for literal, name in parts_of(scoring.text_template)
    )


def _as_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Invalid UTF-8, which Parquet allows, becomes U+FFFD."""
    values = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode(errors="replace") for value in values]


# How many tokens go through the model for a text: of one sequence, several passages, or a pair with each label.
#
# Follows `worker/scoring/tokenizing`, but only counts. The tokenizer is that of the `tokenizers` package, if it is installed:
# `pip install 'shardsift[estimate]'`, or with transformers. Otherwise the characters are counted.

CHARS_PER_TOKEN = (
    4.2  # BERT's tokenizer makes one of 4.4 characters of English web pages, and of 3.9 of documentation and code
)
CHARACTERS_ERROR = 0.3  # share of the tokens by which that may be off, in languages written with spaces
_CHARS_A_TOKEN_READ = 10  # a text is read this far for each token that the model takes; beyond, it goes on as it began
_CHARS_OF_PASSAGES = 20_000  # and this far if all of it is scored
_FINEPDFS_CHARS = 10_000  # see worker/scoring/tokenizing/passages.py

Lengths = tuple[int, ...]  # the tokens of each sequence of a text, special ones included


class Counter(Protocol):
    """Counts tokens."""

    @property
    def special(self) -> int:
        """The tokens that are added to each text."""

    @property
    def special_of_pair(self) -> int:
        """The tokens that are added to each pair of texts."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, without special ones."""


@dataclass(frozen=True, kw_only=True)
class CharacterCounter:
    special: int = 2
    special_of_pair: int = 3

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [round(len(text) / CHARS_PER_TOKEN) for text in texts]


class TokenCounter:
    """Raises ImportError without the `tokenizers` package, and ValueError for a file that it cannot read."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception
            raise ValueError(f"{file} cannot be read ({error})") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special = self._tokenizer.num_special_tokens_to_add(False)
        self.special_of_pair = self._tokenizer.num_special_tokens_to_add(True)

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def lengths_of(texts: Sequence[Text], scoring: Scoring, counter: Counter, *, max_tokens: int) -> list[Lengths]:
    """The sequences that each text becomes. `max_tokens` is what the model takes; the scoring may ask for less."""
    most = min(max_tokens, scoring.max_tokens or max_tokens)
    firsts = [text[0] for text in texts]
    if scoring.text_pair_column:
        seconds = _counts([text[1] for text in texts], counter, most)
        both = zip(_counts(firsts, counter, most), seconds, strict=True)
        return [(min(first + second + counter.special_of_pair, most),) for first, second in both]
    hypotheses = scoring.zero_shot.hypotheses if scoring.zero_shot else ()
    beside = max(counter.counts(hypotheses)) + counter.special_of_pair if hypotheses else counter.special
    room = max(1, most - beside)
    if scoring.passages == "finepdfs":
        contents = _top_and_bottom(firsts, counter, room)
    else:
        counts = _counts(firsts, counter, most if scoring.passages == "head" else _CHARS_OF_PASSAGES)
        contents = [_passages(tokens, scoring.passages, room) for tokens in counts]
    return [tuple(tokens + beside for tokens in passages) * max(1, len(hypotheses)) for passages in contents]


def _passages(tokens: int, passages: str, room: int) -> Lengths:
    """The tokens of each passage of a text. As `places_of_passages` places them, all but that of a short text are full."""
    beyond = max(0, tokens - room)
    match passages.partition(":"):
        case _ if not beyond:
            return (tokens,)
        case "head+tail", _, _:
            return 2 * (room,)
        case "head+middle+tail", _, _:
            return (3 if beyond > room else 2) * (room,)
        case "stride", _, stride:
            return (1 - (-beyond // int(stride))) * (room,)
    return (room,)


def _top_and_bottom(texts: Sequence[str], counter: Counter, room: int) -> list[Lengths]:
    tops = counter.counts([text[:_FINEPDFS_CHARS] for text in texts])
    bottoms = counter.counts([text[-_FINEPDFS_CHARS:] if len(text) > 2 * _FINEPDFS_CHARS else "" for text in texts])
    return [
        (min(top, room), *([min(bottom, room)] if len(text) > 2 * _FINEPDFS_CHARS else []))
        for text, top, bottom in zip(texts, tops, bottoms, strict=True)
    ]


def _counts(texts: Sequence[str], counter: Counter, most: int) -> list[int]:
    """The tokens of each text. Of a long one, only the beginning is tokenized."""
    reach = max(1, min(_CHARS_A_TOKEN_READ * most, _CHARS_OF_PASSAGES))
    found = zip(texts, counter.counts([text[:reach] for text in texts]), strict=True)
    return [tokens if len(text) <= reach else round(tokens * len(text) / reach) for text, tokens in found]


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
