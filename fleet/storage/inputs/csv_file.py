"""Rows of a CSV file, as RFC 4180 has it: a line of names, commas, quotes doubled in quoted fields, in UTF-8.

An empty field is null; an empty field in quotes is the empty text. Blank lines are no rows.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.csv

from fleet.counted import counted
from fleet.errors import ShardError, ShardsiftError
from fleet.storage.inputs.columns import (
    RUN_REMEDY,
    SEEN,
    Columns,
    counted_rows,
    no_such_field,
    seen_names,
    sliced,
    typed,
)
from fleet.storage.inputs.csv_records import RECORDS, lone_return, record_starts, stray_quote
from fleet.storage.inputs.csv_types import converted, first_misfit, is_readable, type_of
from fleet.storage.inputs.formats import CSV_LAYOUT
from fleet.storage.inputs.input_file import STEP_ROWS
from fleet.storage.inputs.line_blocks import Block, LineFile


class CsvFile:
    """A CSV file as an InputFile. Without `columns`, the types of its first rows; with `only`, others are left out."""

    def __init__(self, lines: LineFile, columns: Columns | None, *, only: bool = False) -> None:
        self._lines = lines
        self._columns = columns
        self._only = only

    @cached_property
    def schema(self) -> pa.Schema:
        """In the order of the run's columns, then those that the run does not have. Raises ShardError or UsageError."""
        if self._columns is None:
            return self._seen_schema()
        here = tuple((name, kind) for name, kind in self._columns if name in self._names)
        for name, kind in self._columns if self._only else ():
            if name not in self._names:
                raise self._no_such_column(name, kind)
        known = typed(here, self._seen_schema() if seen_names(here) else pa.schema([]), self._lines.uri)
        for field in known:
            if not is_readable(field.type):
                raise ShardError(
                    f'{self._lines.uri} cannot have the column "{field.name}" of the run, which is {field.type}. {RUN_REMEDY}'
                )
        more = [] if self._only else [name for name in self._names if name not in known.names]
        return pa.schema([*known, *(pa.field(name, pa.string()) for name in more)])

    def batches(
        self, columns: Sequence[str] | None = None, *, most_rows: int = STEP_ROWS, use_threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Reads on the caller's thread only. Raises ShardError that names the line of a row which does not fit the schema."""
        chosen = pa.schema([self.schema.field(name) for name in columns]) if columns else self.schema
        for block in self._rows(self._lines.blocks(RECORDS)):
            texts = self._texts(block)
            values = [self._typed(block, texts[field.name], field) for field in chosen]
            yield from sliced(pa.table(values, schema=chosen), most_rows)

    def count_rows(self, most: int | None = None) -> int:
        """Counts lines and checks little else."""
        return counted_rows((len(record_starts(block.data)) for block in self._rows(self._lines.blocks(RECORDS))), most)

    @cached_property
    def _names(self) -> list[str]:
        first = next(self._lines.blocks(RECORDS), None)
        if first is None:
            raise ShardError(f"{self._lines.uri} is empty. A CSV file begins with a line of names.")
        header, _ = self._cut(first)
        try:
            names = next(csv.reader(io.StringIO(header.data.decode(), newline=""), strict=True))
        except csv.Error as error:
            raise self._lines.error(header.first_line, f"not a line of names ({error}).") from error
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise self._lines.error(header.first_line, f'several columns are called "{repeated}". Rename all but one.')
        return [name or f"Unnamed: {place}" for place, name in enumerate(names)]  # as pandas calls an index

    def _no_such_column(self, name: str, kind: str) -> ShardsiftError:
        if kind == SEEN:
            return no_such_field(name, self._names, self._lines.uri, hint=CSV_LAYOUT)
        names = ", ".join(self._names)
        return ShardError(f'{self._lines.uri} has no column "{name}"; it has: {names}. {CSV_LAYOUT}')

    def _seen_schema(self) -> pa.Schema:
        texts = pa.concat_tables([self._no_texts(), *map(self._texts, self._rows(self._lines.sample(RECORDS)))])
        return pa.schema([pa.field(name, type_of(texts[name])) for name in self._names])

    def _no_texts(self) -> pa.Table:
        return pa.schema([pa.field(name, pa.string()) for name in self._names]).empty_table()

    def _rows(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks without the line of names."""
        first = next(blocks, None)
        if first is not None:
            yield self._cut(first)[1]
        yield from blocks

    def _cut(self, first: Block) -> tuple[Block, Block]:
        """The line of names, and the rest of the first block."""
        self._check(first)
        starts = [*record_starts(first.data).tolist(), len(first.data)]
        if len(starts) == 1:
            raise ShardError(f"{self._lines.uri} has blank lines only. A CSV file begins with a line of names.")
        return first.part(starts[0], starts[1]), first.part(starts[1], len(first.data))

    def _check(self, block: Block) -> None:
        self._lines.check_utf8(block)
        if (quote := stray_quote(block.data)) is not None:
            raise self._lines.error(
                block.line_at(quote),
                'a quote (") inside a field. Quote such a field whole, with two quotes for one: "a ""b"" c".',
            )
        if (end := lone_return(block.data)) is not None:
            raise self._lines.error(block.line_at(end), "a line ends with CR alone. End lines with LF or CR LF.")

    def _texts(self, block: Block) -> pa.Table:
        """The fields of a block, before they are numbers."""
        self._check(block)
        starts = record_starts(block.data)
        if not len(starts):
            return self._no_texts()
        invalid: list[pyarrow.csv.InvalidRow] = []
        try:
            table = _parsed(block.data, self._names, invalid)
        except pa.ArrowException as error:
            for row in invalid:
                line = block.line_at(int(starts[row.number - 1]))
                problem = f"{counted(row.actual_columns, 'field')}, and the line of names has {row.expected_columns:,}."
                raise self._lines.error(line, f"{problem} {CSV_LAYOUT}") from error
            raise self._lines.error(block.first_line, "not readable as CSV from this line on.") from error
        if len(table) != len(starts):
            raise self._lines.error(block.first_line, "not readable as CSV from this line on.")
        return table

    def _typed(self, block: Block, texts: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        values = converted(texts, field.type)
        if values is not None:
            return values
        line = block.line_at(int(record_starts(block.data)[first_misfit(texts, field.type)]))
        raise self._lines.error(
            line, f'"{field.name}" is a text that the run cannot read as {field.type}. {RUN_REMEDY}'
        )


def _parsed(data: bytes, names: list[str], invalid: list[pyarrow.csv.InvalidRow]) -> pa.Table:
    """The fields as text. Raises ArrowInvalid, and adds a row to `invalid` if it has too many or too few."""

    def stop_at(row: pyarrow.csv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    content = pa.array([data], pa.large_binary()).buffers()[2]  # Arrow's own: its thread must not free a Python object
    return pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=stop_at),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
            check_utf8=False,
        ),
    )
