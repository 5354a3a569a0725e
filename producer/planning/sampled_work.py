"""Estimate a model's work from a few rows of a few shards: tokens and, if its layers are known, operations.

The same input gives the same sample. The estimate is rough: for example, a long text is assumed to fill its passages.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from huggingface_hub import hf_hub_download

from shardsift.fleet.errors import ShardError, ShardsiftError
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.inputs.input_file import InputFile, NotedRows
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.inputs.parquet_file import ParquetInput
from shardsift.fleet.run.flops import shape_of
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model
from shardsift.fleet.run.model_config import read_object, sizes_in
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.run.text import whole_texts
from shardsift.fleet.storage.errors import translated

LOCAL_SHARDS, REMOTE_SHARDS = 8, 4  # each opens a file, and reading ahead fetches 32 MiB of a remote one
MOST_ROWS = 1_000  # of all shards together
CHARS_PER_TOKEN = 4.2  # BERT's tokens have 4.4 characters in English web pages, 3.9 in code
_THREADS = 8
_STEP_ROWS = 256  # decoded at once
_CHARS_READ = 20_000  # tokenised of each text; the rest is assumed to have as many tokens per character
# The largest number of passages. `stride:N` reads whole texts.
_PASSAGES = {"head": 1, "head+tail": 2, "finepdfs": 2, "head+middle+tail": 3}
_UNLIMITED = 1 << 30
# DistilBERT's names of fields in config.json → the usual names.
_ALSO_CALLED = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
}


@dataclass(frozen=True, kw_only=True)
class SampledShard:
    """A sample of a shard's rows, in `table`. `rows` is the number of rows in the whole shard, or None if unknown."""

    shard: Shard
    rows: int | None
    table: pa.Table
    noted: NotedRows = field(default_factory=NotedRows)  # bad rows of the sample, and fields left out of its other rows
    numbers: Sequence[int] = ()  # row numbers in the file; empty if the sample has the shard's first rows


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one scoring on all rows. `operations` counts floating-point operations, None if the layers are unknown.

    `why_not_counted` is empty if the tokens were counted by the model's tokenizer.
    """

    scoring: Scoring
    tokens: int
    operations: float | None
    why_not_counted: str


def sample_shards(spec: RunSpec, shards: Sequence[Shard]) -> tuple[SampledShard, ...]:
    """Choose shards at random, and read the scored columns of the first rows of each.

    Raises ShardError if a shard is broken or lacks a scored column, TransientError if the network fails.
    """
    most = LOCAL_SHARDS if all(shard.uri.startswith("file:") for shard in shards) else REMOTE_SHARDS
    chosen = random.Random(spec.input_revision).sample(list(shards), min(most, len(shards)))
    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(partial(_sampled, spec=spec, most_rows=MOST_ROWS // max(1, len(chosen))), chosen))


def work_of(scoring: Scoring, sample: Sequence[SampledShard], rows: int) -> Work:
    """Estimate the work for `rows` rows from the sample.

    Raises ShardsiftError if the scorer is not a sequence classifier, or if the sample has no readable rows.
    """
    model = scoring.model
    if model.scorer != SEQUENCE_CLASSIFIER:
        raise ShardsiftError(f"what the scorer {model.scorer} makes of a text is known to its workers only")
    texts = [text for one in sample for text in whole_texts(one.table, scoring)]
    if not texts:
        raise ShardsiftError("the shards that were looked at have no rows")
    if len(texts) == sum(len(one.noted) for one in sample):
        raise ShardsiftError("none of the rows that were looked at can be read")
    sizes = _sizes(model)
    counter, why_not_counted = _counter(model)
    lengths = _lengths(texts, scoring, counter)
    longest = min(scoring.max_tokens or _UNLIMITED, sizes.get("max_position_embeddings", _UNLIMITED))
    tokens = tokens_read(lengths, scoring, longest)
    shape = shape_of(SimpleNamespace(**sizes))
    operations = None
    if shape:
        sequences = np.maximum(1, np.minimum(lengths, longest))
        operations = float((shape.flops(sequences) / sequences * tokens).mean()) * rows
    return Work(
        scoring=scoring,
        tokens=round(float(tokens.mean()) * rows),
        operations=operations,
        why_not_counted=why_not_counted,
    )


def tokens_read(lengths: Any, scoring: Scoring, longest: int) -> Any:
    """Return the number of tokens that the model computes for each text, over all passages and labels.

    `lengths` has the number of tokens of each text. A passage has at most `longest` tokens.
    """
    passages = _PASSAGES.get(scoring.passages)
    read = np.minimum(lengths, passages * longest) if passages else lengths
    return read * (len(scoring.zero_shot.labels) if scoring.zero_shot else 1)


def _sampled(shard: Shard, *, spec: RunSpec, most_rows: int) -> SampledShard:
    opened = open_shard(shard.uri, spec, first_row=shard.first_row)
    with opened as file, translated(f"Reading {shard.uri}"):
        rows = file.count_rows(shard.row_limit) if has_footer(shard.uri) else None
        columns = _scored_columns(spec)
        if missing := [name for name in columns if name not in file.schema.names]:
            raise ShardError(
                f'Shard {shard.name} has no column "{missing[0]}"; it has: {", ".join(file.schema.names)}.'
            )
        wanted = most_rows if shard.row_limit is None else min(most_rows, shard.row_limit)
        noted = NotedRows()
        table = _first_rows(file, columns, wanted, noted)
        end = shard.first_row + len(table)
        noted.keep(range(shard.first_row, end))
        return SampledShard(shard=shard, rows=rows, table=table, noted=noted)


def _first_rows(file: InputFile, columns: list[str], wanted: int, noted: NotedRows) -> pa.Table:
    """Read the first rows. Reads all columns of JSON Lines and CSV, because a bad value in any column makes a bad row."""
    read = columns if isinstance(file, ParquetInput) else None
    batches: list[pa.RecordBatch] = []
    missing = wanted
    for batch in file.batches(read, bad=noted, most_rows=_STEP_ROWS, use_threads=False):
        batches.append(batch.slice(0, missing).select(columns))
        missing -= len(batches[-1])
        if not missing:
            break
    return pa.Table.from_batches(batches, schema=pa.schema([file.schema.field(name) for name in columns]))


def _scored_columns(spec: RunSpec) -> list[str]:
    names = (name for scoring in spec.scorings for name in (*scoring.text_columns, scoring.text_pair_column))
    return list(dict.fromkeys(name for name in names if name is not None))


def _lengths(texts: list[str], scoring: Scoring, counter: Callable[[list[str]], list[int]]) -> Any:
    """Count the tokens of each text, untruncated. For zero-shot scoring, add those of the longest hypothesis.

    A blank text has 0 tokens. The tokens of a very long text are extrapolated from its beginning.
    """
    counts = np.array(counter([text[:_CHARS_READ] for text in texts]))
    counts = counts * np.maximum(1.0, np.array([len(text) for text in texts]) / _CHARS_READ)
    if scoring.zero_shot:
        counts += max(counter(list(scoring.zero_shot.hypotheses)))
    return np.where([bool(text.strip()) for text in texts], counts, 0)


def _counter(model: Model) -> tuple[Callable[[list[str]], list[int]], str]:
    """Return a function that counts tokens, and why it does not use the model's tokenizer (empty if it does)."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return _by_characters, "this machine has no tokenizers: pip install 'shardsift[estimate]'"
    try:
        tokenizer = Tokenizer.from_file(str(_file(model, "tokenizer.json")))
    except Exception:  # no such file, no network, or a plain Exception of tokenizers
        return _by_characters, f"{model.name} has no tokenizer.json that can be read"
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda texts: [len(encoding) for encoding in tokenizer.encode_batch_fast(texts)], ""


def _by_characters(texts: list[str]) -> list[int]:
    return [round(len(text) / CHARS_PER_TOKEN) for text in texts]


def _sizes(model: Model) -> dict[str, Any]:
    with translated(f"Reading config.json of {model.name}"):
        sizes = sizes_in(read_object(_file(model, "config.json"), model.name))
    return {_ALSO_CALLED.get(name, name): value for name, value in sizes.items()}


def _file(model: Model, name: str) -> Path:
    if model.is_folder:
        return Path(model.name) / name
    return Path(hf_hub_download(model.name, name, revision=model.revision))
