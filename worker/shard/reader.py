"""Read a shard window by window. Memory is bounded by the window, not by the size of the file or its row groups."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.columns import describe_columns, repeated_column
from fleet.errors import ShardError
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.errors import translated

_STEP_BYTES = 8 << 20  # rows are decoded in steps of about this size
_STEP_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class Window:
    """Consecutive rows of a shard, with all columns. The end of a window depends only on the file and the spec."""

    first_row: int
    rows: pa.Table


def read_windows(parquet: pq.ParquetFile, shard: Shard, spec: RunSpec) -> Iterator[Window]:
    """The shard's windows in order. Raises ShardError if the file is broken or its columns differ from the run's."""
    _check_columns(parquet.schema_arrow, shard, spec)
    first_row = 0
    for batches in _grouped(_batches(parquet, shard), spec):
        rows = pa.Table.from_batches(batches)
        yield Window(first_row=first_row, rows=rows)
        first_row += len(rows)
        pa.default_memory_pool().release_unused()  # otherwise the allocator keeps freed memory of every size


def _grouped(batches: Iterator[pa.RecordBatch], spec: RunSpec) -> Iterator[list[pa.RecordBatch]]:
    """Join and split batches into groups, one group per window."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        while batch.num_rows:
            step = batch.slice(0, spec.window_rows - _rows(pending))
            batch = batch.slice(step.num_rows)
            pending.append(step)
            if _rows(pending) == spec.window_rows or sum(step.nbytes for step in pending) >= spec.window_bytes:
                yield pending
                pending = []
    if pending:
        yield pending


def _batches(parquet: pq.ParquetFile, shard: Shard) -> Iterator[pa.RecordBatch]:
    """The rows up to the shard's limit, in batches as they are decoded."""
    left = parquet.metadata.num_rows if shard.row_limit is None else shard.row_limit
    with translated(f"Reading shard {shard.name}"):
        for batch in parquet.iter_batches(batch_size=_step_rows(parquet.metadata)):
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return


def _step_rows(metadata: pq.FileMetaData) -> int:
    """The rows per step: fewer if rows are large."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    bytes_a_row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_STEP_ROWS, int(_STEP_BYTES / max(1, bytes_a_row))))


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _check_columns(schema: pa.Schema, shard: Shard, spec: RunSpec) -> None:
    if repeated := repeated_column(schema):
        raise ShardError(f'Shard {shard.name} has several columns "{repeated}". Rename all but one.')
    here, expected = dict(describe_columns(schema)), dict(spec.columns)
    if here == expected:
        return
    missing = [f'no "{name}"' for name in expected if name not in here]
    extra = [f'an extra "{name}"' for name in here if name not in expected]
    other = [
        f'"{name}" is {here[name]}, not {expected[name]}'
        for name in expected
        if here.get(name, expected[name]) != expected[name]
    ]
    raise ShardError(
        f"Shard {shard.name} has other columns than the run's first shard: {', '.join(missing + extra + other)}. "
        "Score it in a run of its own."
    )
