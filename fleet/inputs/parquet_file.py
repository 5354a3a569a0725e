"""Rows of a Parquet file."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fleet.inputs.columns import Columns
from fleet.inputs.input_file import STEP_ROWS, BadRow, BadRows, note_bad_rows

_STEP_BYTES = 8 << 20  # rows are decoded in steps of about this size
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # view type → its plain type


class ParquetInput:
    """A Parquet file as an InputFile. Its columns are in the order of the run's; those that the run has not come last."""

    def __init__(self, parquet: pq.ParquetFile, columns: Columns | None, uri: str) -> None:
        self._parquet = parquet
        self._uri = uri
        places = {name: place for place, (name, _) in enumerate(columns or ())}
        fields = _written(parquet)
        self._order = sorted(range(len(fields)), key=lambda number: places.get(fields[number].name, len(places)))
        self.schema = pa.schema(
            [fields[number].with_type(_without_views(fields[number].type)) for number in self._order],
            metadata=fields.metadata,
        )

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        step = min(most_rows, _step_rows(self._parquet.metadata))
        schema = pa.schema([self.schema.field(name) for name in columns]) if columns else self.schema
        first_row = 0
        for batch in self._parquet.iter_batches(batch_size=step, columns=columns, use_threads=use_threads):
            rows = batch.select(list(columns or self._order)).cast(schema)
            found = _bad_rows(rows, first_row)
            note_bad_rows(found, bad, first_row=first_row, uri=self._uri)
            yield _without(rows, found)
            first_row += len(rows)

    def count_rows(self, most: int | None = None) -> int:
        rows = int(self._parquet.metadata.num_rows)
        return rows if most is None else min(rows, most)


def _written(parquet: pq.ParquetFile) -> pa.Schema:
    """The schema with the types of dictionaries as they were written, not as `open_parquet` reads them."""
    fields, written = parquet.schema_arrow, parquet.metadata.schema.to_arrow_schema()
    for place, field in enumerate(fields):
        if pa.types.is_dictionary(field.type):
            fields = fields.set(place, written.field(place))
    return fields


def _without_views(kind: pa.DataType) -> pa.DataType:
    if "_view" not in str(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), kind.item_field.with_type(_without_views(kind.item_type)))
    if pa.types.is_nested(kind):
        item = kind.value_field.with_type(_without_views(kind.value_type))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    return _PLAIN.get(kind, kind)


def _bad_rows(batch: pa.RecordBatch, first_row: int) -> BadRows:
    """The rows of which a reader could not make Python values."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:  # or for another reason, such as a time of day after midnight
        return {
            place: BadRow(
                place=f"row {first_row + place:,}",
                reason="not UTF-8",
                detail=f'"{name}" is not UTF-8',
                remedy="Store bytes in a binary column.",
            )
            for place in range(len(batch))
            if (name := _undecodable_column(batch.slice(place, 1))) is not None
        }
    return {}


def _undecodable_column(row: pa.RecordBatch) -> str | None:
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            column.to_pylist()
        except UnicodeDecodeError:
            return str(name)
        except (ValueError, OverflowError):  # Python has no such date
            pass
    return None


def _without(batch: pa.RecordBatch, bad: BadRows) -> pa.RecordBatch:
    """The rows, with null in the bad ones."""
    if not bad:
        return batch
    is_bad = np.isin(np.arange(len(batch)), list(bad))
    places = pa.array(np.arange(len(batch)), mask=is_bad)
    return pa.record_batch([_taken(column, places) for column in batch.columns], schema=batch.schema)


def _taken(column: pa.Array, places: pa.Int64Array) -> pa.Array:
    """The values at these places. A dictionary keeps no others."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type).take(places).cast(column.type)
    return column.take(places)


def _step_rows(metadata: pq.FileMetaData) -> int:
    """The rows per step: fewer if rows are large."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    bytes_a_row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(STEP_ROWS, int(_STEP_BYTES / max(1, bytes_a_row))))
