"""Read the rows of a Parquet file."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import ColumnTypes, type_named
from shardsift.fleet.inputs.formats import ENDINGS, ending_of
from shardsift.fleet.inputs.input_file import STEP_ROWS, BadRow, BadRows, note_bad_rows, with_nulls
from shardsift.fleet.inputs.parquet_pages import RowsAhead
from shardsift.fleet.run.output_columns import plain_type, type_name
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.hub_files import filesystem_of

# Remote files are read in blocks, one ahead; otherwise each of FineWeb's row groups of 1,000 rows would cost a request.
# Several blocks are kept, because the columns of a row group are not read in order.
_BLOCK_BYTES, _BLOCKS_KEPT = 8 << 20, 8
_BUFFER_BYTES = 1 << 20  # column chunks are read through a buffer, so a huge row group is never loaded whole
_ALIKE = ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})
_INT96_UNIT = "us"  # as in Spark; nanoseconds overflow for times before 1677 or after 2262
_UNITS = ["s", "ms", "us", "ns"]
_UNREADABLE = re.compile("dictionary<|list_view<")  # pyarrow cannot read these inside another type


@contextmanager
def open_parquet(uri: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for streaming.

    Dictionaries are read with int32 indices. With other index types, pyarrow rejects a whole column if one text is not
    UTF-8. Raises ShardError if the file is missing or broken, and TransientError if the network fails.
    """
    with _opened(uri) as (_, parquet, _):
        yield parquet


@contextmanager
def open_parquet_input(uri: str, columns: ColumnTypes | None, first_row: int) -> Iterator["ParquetInput"]:
    with _opened(uri) as (file, parquet, written):
        yield ParquetInput(file, parquet, written, columns, uri, first_row)


@contextmanager
def _opened(uri: str) -> Iterator[tuple[BinaryIO, pq.ParquetFile, pa.Schema]]:
    filesystem, path = filesystem_of(uri)
    with translated(f"Opening {uri}"):
        file = filesystem.open(
            path, "rb", block_size=_BLOCK_BYTES, cache_type="background", cache_options={"maxblocks": _BLOCKS_KEPT}
        )
    with file:
        with translated(f"Opening {uri}"):
            parquet, written = _parquet_file(file, uri)
        yield file, parquet, written


def _parquet_file(file: BinaryIO, uri: str) -> tuple[pq.ParquetFile, pa.Schema]:
    """Open the file. Also returns the schema that it was written with."""
    try:
        metadata = pq.read_metadata(file)
        written = pq.ParquetFile(file, metadata=metadata, coerce_int96_timestamp_unit=_INT96_UNIT).schema_arrow
        names = [field.name for field in written if pa.types.is_dictionary(field.type)]
        if any(pa.types.is_nested(field.type) and _UNREADABLE.search(str(field.type)) for field in written):
            metadata = _of_parquets_types(metadata)
        parquet = pq.ParquetFile(
            file,
            metadata=metadata,
            read_dictionary=names,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            coerce_int96_timestamp_unit=_INT96_UNIT,
        )
        return parquet, written
    except pa.ArrowInvalid as error:
        if ending_of(uri):
            raise
        raise ShardError(
            f"Opening {uri}: not a readable Parquet file. The names of input files end in {ENDINGS}."
        ) from error


def _of_parquets_types(metadata: pq.FileMetaData) -> pq.FileMetaData:
    """Remove Arrow's schema from a footer. With it, pyarrow cannot read list views and some nested dictionaries."""
    footer = pa.BufferOutputStream()
    metadata.write_metadata_file(footer)
    return pq.read_metadata(pa.BufferReader(footer.getvalue().to_pybytes().replace(b"ARROW:schema", b"arrow-schema")))


class ParquetInput:
    """A Parquet file, from `first_row` on, as an InputFile. `fields` is the schema that it was written with.

    The run's `columns` come first, in the run's order. They get the run's types if that changes no value. The file's
    other columns follow.
    """

    def __init__(
        self,
        file: BinaryIO,
        parquet: pq.ParquetFile,
        fields: pa.Schema,
        columns: ColumnTypes | None,
        uri: str,
        first_row: int,
    ) -> None:
        self._file, self._parquet = file, parquet
        self._first_row = first_row
        self._uri = uri
        order = {name: index for index, (name, _) in enumerate(columns or ())}
        kinds = dict(columns or ())
        self._order = sorted(range(len(fields)), key=lambda number: order.get(fields[number].name, len(order)))
        self.schema = pa.schema(
            [_as_in_the_run(fields[number], kinds) for number in self._order], metadata=fields.metadata
        )
        if columns and not parquet.metadata.num_rows:
            self.schema = _of_the_run(self.schema, columns)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in columns]) if columns else self.schema
        if not self._parquet.metadata.num_rows:
            return
        ends = list(accumulate(row_group_rows(self._parquet)))
        begun = bisect_right(ends, self._first_row)
        first_row = ends[begun - 1] if begun else 0
        for batch in self._decoded(range(begun, len(ends)), columns, most_rows, use_threads=use_threads):
            before = min(len(batch), max(0, self._first_row - first_row))
            first_row += before
            rows = self._in_types_of(schema, batch.slice(before).select(list(columns or self._order)))
            found = _bad_rows(rows, first_row)
            note_bad_rows(found, bad, first_row=first_row, uri=self._uri)
            yield with_nulls(rows, found)
            first_row += len(rows)

    def _decoded(
        self, groups: Sequence[int], columns: Sequence[str] | None, most_rows: int, *, use_threads: bool
    ) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] | None = None
        for number in groups:
            ahead = RowsAhead(self._file, self._parquet.metadata, number, columns or ())
            while ahead.rows:
                step = ahead.step(most_rows)
                batches = batches or self._parquet.iter_batches(step, groups, columns, use_threads=use_threads)
                self._parquet.reader.set_batch_size(
                    step
                )  # for the next batch; `iter_batches` sets only the first one's
                if (batch := next(batches, None)) is None:
                    raise ShardError(
                        f"{self._uri} is damaged, or pyarrow cannot decode it: {ahead.rows:,} of the rows that its footer "
                        "counts are missing. Write it again, with another encoding or writer."
                    )
                ahead.decoded(batch)
                yield batch

    def _in_types_of(self, schema: pa.Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return rows.cast(schema)
        except pa.ArrowInvalid as error:
            raise ShardError(
                f"{self._uri} has a value that the run's types do not hold: {error}. Score it in a run of its own."
            ) from error

    def count_rows(self, most: int | None = None) -> int:
        rows = max(0, int(self._parquet.metadata.num_rows) - self._first_row)
        return rows if most is None else min(rows, most)


def row_group_rows(parquet: pq.ParquetFile) -> list[int]:
    return [parquet.metadata.row_group(number).num_rows for number in range(parquet.metadata.num_row_groups)]


def _of_the_run(schema: pa.Schema, columns: ColumnTypes) -> pa.Schema:
    """Return the schema to use for a file without rows, whose own types may be wrong: pandas writes null for all.

    It is the run's schema. But if the file has columns that the run lacks, or if the name of a type in `columns` is
    ambiguous, it is the file's own `schema`.
    """
    try:
        known = pa.schema([(name, type_named(kind)) for name, kind in columns], metadata=schema.metadata)
    except ValueError:  # the name does not identify one type
        return schema
    return known if {*schema.names} <= {*known.names} else schema


def _as_in_the_run(field: pa.Field, kinds: Mapping[str, str]) -> pa.Field:
    own = plain_type(field.type)
    if type_name(own) == kinds.get(field.name):
        return field.with_type(own)
    with suppress(ValueError):  # the name does not identify one type
        wanted = type_named(kinds.get(field.name, ""))
        return field.with_type(wanted if _widens(own, wanted) else own)
    return field.with_type(own)


def _widens(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a conversion from `own` to `wanted` changes no value.

    Values that are out of the range of `wanted`, as after a change from seconds to nanoseconds, do not count: for them,
    Arrow raises an error when it casts.
    """
    if pa.types.is_null(own) or own == wanted:
        return True
    if pa.types.is_dictionary(own) or pa.types.is_dictionary(wanted):
        return _widens(*(kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (own, wanted)))
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        kinds = {field.name: field.type for field in own}  # by name, because Arrow accepts any order
        has_same = kinds.keys() == {*wanted.names} and len(kinds) == own.num_fields == wanted.num_fields
        return has_same and all(_widens(kinds[field.name], field.type) for field in wanted)
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        return _widens(own.key_type, wanted.key_type) and _widens(own.item_type, wanted.item_type)
    if _is_list(own) and _is_list(wanted):
        return _widens(own.value_type, wanted.value_type)
    if pa.types.is_fixed_size_list(own) and pa.types.is_fixed_size_list(wanted):
        return own.list_size == wanted.list_size and _widens(own.value_type, wanted.value_type)
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted):  # time zones may differ
        has_same = (own.tz is None) == (wanted.tz is None)
        return has_same and _UNITS.index(own.unit) <= _UNITS.index(wanted.unit)
    if any(is_kind(own) and is_kind(wanted) for is_kind in (pa.types.is_duration, pa.types.is_time)):
        return _UNITS.index(own.unit) <= _UNITS.index(wanted.unit)
    if pa.types.is_decimal(own) and pa.types.is_decimal(wanted):
        return bool(own.scale <= wanted.scale and own.precision - own.scale <= wanted.precision - wanted.scale)
    if _is_number(own) and _is_number(wanted):
        return bool(np.can_cast(own.to_pandas_dtype(), wanted.to_pandas_dtype()))
    return any({own, wanted} <= alike for alike in _ALIKE)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _bad_rows(batch: pa.RecordBatch, first_row: int) -> BadRows:
    """Find the rows with a text that is not valid UTF-8. Python cannot read such a text."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:  # may have another reason, such as a time of day of more than 24 h
        return {
            index: BadRow(
                position=f"row {first_row + index:,}",
                reason="not UTF-8",
                detail=f'"{name}" is not UTF-8',
                remedy="Store bytes in a binary column.",
            )
            for index in range(len(batch))
            if (name := _undecodable_column(batch.slice(index, 1))) is not None
        }
    return {}


def _undecodable_column(row: pa.RecordBatch) -> str | None:
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            column.to_pylist()
        except UnicodeDecodeError:
            return str(name)
        except (ValueError, OverflowError):  # a date out of Python's range
            pass
    return None
