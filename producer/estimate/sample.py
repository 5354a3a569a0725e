"""Read a few rows of a few shards. The same input gives the same ones."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from fleet.errors import ShardError
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.inputs.bad_rows import IgnoredBadRows
from fleet.storage.inputs.formats import has_footer
from fleet.storage.inputs.input_file import InputFile
from fleet.storage.inputs.opening import open_input

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
