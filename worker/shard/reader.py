"""Read a shard window by window. Memory depends on the window, not on the sizes of file, row groups or blocks."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import type_named
from shardsift.fleet.inputs.input_file import BadRow, BadRows, FirstBadRows, InputFile, NotedRows, too_many_bad_rows
from shardsift.fleet.run.output_columns import describe_columns, repeated_column
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.errors import translated


@dataclass(frozen=True, kw_only=True)
class Window:
    """Consecutive rows of a shard, with all columns. The end of a window depends only on the rows and the spec."""

    first_row: int  # in the file
    rows: pa.Table
    bad: dict[int, BadRow] = field(default_factory=dict)  # by index in `rows`, in which they are null
    left_out: tuple[tuple[str, ...], ...] = ()  # for each row that has any: its fields that are in no column


def read_windows(file: InputFile, shard: Shard, spec: RunSpec) -> Iterator[Window]:
    """Yield the shard's windows in order.

    Raises ShardError if the file is broken, if its columns differ from the run's, or, after the last window, if it has
    more unreadable rows than the run allows.
    """
    _check_columns(file.schema, shard, spec)
    first_row = shard.first_row
    noted, all_bad = NotedRows(), FirstBadRows()
    for batches in _grouped(_batches(file, shard, noted), spec):
        rows = pa.Table.from_batches(batches)
        end = first_row + len(rows)
        bad = {row - first_row: noted.pop(row) for row in sorted(noted) if row < end}
        left_out = tuple(noted.left_out.pop(row) for row in sorted(noted.left_out) if row < end)
        all_bad.add(bad.values())
        yield Window(first_row=first_row, rows=rows, bad=bad, left_out=left_out)
        first_row = end
        pa.default_memory_pool().release_unused()  # otherwise the allocator keeps freed memory of every size
    rows_in = first_row - shard.first_row
    if why := too_many_bad_rows(all_bad.number, rows_in, spec.max_bad_rows, of_run=False):
        raise ShardError(f"Shard {shard.name}: {why}. {all_bad}")


def _grouped(batches: Iterator[pa.RecordBatch], spec: RunSpec) -> Iterator[list[pa.RecordBatch]]:
    """Group the rows of batches by window. The result does not depend on the sizes of the batches."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        sizes = np.cumsum(row_bytes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(sizes[start - 1]) if start else 0
            reaches_limit = int(np.searchsorted(sizes, before + spec.window_bytes - size)) + 1
            end = min(batch.num_rows, start + spec.window_rows - rows, reaches_limit)
            pending.append(batch.slice(start, end - start))
            rows += end - start
            size += int(sizes[end - 1]) - before
            start = end
            if rows == spec.window_rows or size >= spec.window_bytes:
                yield pending
                pending, rows, size = [], 0, 0
    if pending:
        yield pending


def _batches(file: InputFile, shard: Shard, bad: BadRows) -> Iterator[pa.RecordBatch]:
    left = shard.row_limit
    with translated(f"Reading shard {shard.name}"):
        for batch in file.batches(bad=bad):
            yield batch.slice(0, left)
            if left is not None:
                left -= min(left, batch.num_rows)
                if not left:
                    return


def _check_columns(schema: pa.Schema, shard: Shard, spec: RunSpec) -> None:
    if repeated := repeated_column(schema):
        raise ShardError(f'Shard {shard.name} has several columns "{repeated}". Rename all but one.')
    here = dict(describe_columns(schema))
    expected = {name: _stored_as(kind) for name, kind in spec.columns}
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


def _stored_as(kind: str) -> str:
    with suppress(ValueError):  # the name does not identify one type
        return str(type_named(kind))
    return kind


# The size of each row, which does not depend on how rows are cut into batches.

_VALUE_BYTES = 8  # for types without a fixed size
_TEXT_OR_BINARY = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}

Sizes = npt.NDArray[np.int64]


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """Estimate the bytes that Arrow needs for each row. A text needs its length and an offset."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _value_bytes(column)
    return sizes


def _value_bytes(values: pa.Array) -> Sizes:
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _value_bytes(values.storage)
    if kind in _TEXT_OR_BINARY:
        return _lengths(pc.binary_length(values)) + _VALUE_BYTES
    if pa.types.is_dictionary(kind):
        sizes = np.append(_value_bytes(values.dictionary), _VALUE_BYTES)
        found: Sizes = sizes[values.indices.cast(pa.int64()).fill_null(len(values.dictionary))]
        return found
    if pa.types.is_struct(kind):
        return sum((_value_bytes(field) for field in values.flatten()), start=np.ones(len(values), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_of_texts(kind):
        return _item_bytes(values, _lengths(pc.list_value_length(values))) + _VALUE_BYTES
    if pa.types.is_map(kind):
        return _value_bytes(values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    return np.full(len(values), _fixed_bytes(kind), np.int64)


def _is_list_of_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) and not pa.types.is_primitive(kind.value_type))


def _item_bytes(values: pa.Array, lengths: Sizes) -> Sizes:
    up_to = np.concatenate([[0], np.cumsum(_value_bytes(values.flatten()))])
    ends = np.cumsum(lengths)
    sizes: Sizes = up_to[ends] - up_to[ends - lengths]
    return sizes


def _lengths(found: pa.Array) -> Sizes:
    lengths: Sizes = pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _fixed_bytes(kind: pa.DataType) -> int:
    if isinstance(kind, pa.FixedSizeListType):
        return int(kind.list_size) * _fixed_bytes(kind.value_type)
    try:
        return (int(kind.bit_width) + 7) // 8
    except ValueError:
        return _VALUE_BYTES
