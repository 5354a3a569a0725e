"""The size of each row's values, which is the same however the rows are cut into batches."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_VALUE_BYTES = 8  # of anything whose size its type does not say

Sizes = npt.NDArray[np.int64]


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """About the bytes that Arrow needs: of a text its length and an offset."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _value_bytes(column)
    return sizes


def _value_bytes(values: pa.Array) -> Sizes:
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _value_bytes(values.storage)
    if _is_text_or_binary(kind):
        return _lengths(pc.binary_length(values)) + _VALUE_BYTES
    if pa.types.is_struct(kind):
        return sum((_value_bytes(field) for field in values.flatten()), start=np.ones(len(values), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _item_bytes(values, _lengths(pc.list_value_length(values))) + _VALUE_BYTES
    if pa.types.is_map(kind):
        return _value_bytes(values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    return np.full(len(values), _fixed_bytes(kind), np.int64)


def _item_bytes(values: pa.Array, lengths: Sizes) -> Sizes:
    """The bytes of each list's items."""
    up_to = np.concatenate([[0], np.cumsum(_value_bytes(values.flatten()))])
    ends = np.cumsum(lengths)
    sizes: Sizes = up_to[ends] - up_to[ends - lengths]
    return sizes


def _lengths(found: pa.Array) -> Sizes:
    """Null has the length 0."""
    lengths: Sizes = pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _is_text_or_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _fixed_bytes(kind: pa.DataType) -> int:
    if isinstance(kind, pa.FixedSizeListType):
        return int(kind.list_size) * _fixed_bytes(kind.value_type)
    try:
        return (int(kind.bit_width) + 7) // 8
    except ValueError:
        return _VALUE_BYTES
