"""Rows of a CSV file, as RFC 4180 has it: a line of names, commas, quotes doubled in quoted fields, in UTF-8.

An empty field is null; an empty field in quotes is the empty text. Blank lines are no rows.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fleet.errors import ShardError, ShardsiftError
from fleet.inputs.columns import RUN_REMEDY, SEEN, Columns, counted_rows, no_such_field, seen_names, sliced, typed
from fleet.inputs.formats import CSV_LAYOUT
from fleet.inputs.input_file import STEP_ROWS, BadRow, BadRows, note_bad_rows
from fleet.inputs.line_blocks import Block, LineFile, RecordEnds, is_utf8
from fleet.process.wording import counted

# Find the records of a CSV file: a line end inside quotes is part of a field.
#
# Outside of quotes, the number of quotes before is even, if every quote opens or closes a field or is one of two in a row.
# `stray_quotes` finds those that do not.

_NEWLINE, _RETURN, _QUOTE, _COMMA = b'\n\r",'


class Records(Block):
    """Whole records of a CSV file."""

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the records begin that are not blank."""
        content = _padded(self.data)
        starts = np.concatenate([[0], _ends(content)])
        starts = starts[starts < len(self.data)]
        is_blank = (content[starts] == _NEWLINE) | ((content[starts] == _RETURN) & (content[starts + 1] == _NEWLINE))
        found: npt.NDArray[np.int64] = starts[~is_blank]
        return found

    def texts(self) -> list[bytes]:
        return [self.data[start:end] for start, end in pairwise([*self.starts.tolist(), len(self.data)])]


def stray_quotes(data: bytes) -> npt.NDArray[np.int64]:
    """Where the quotes are that are inside of a field and not doubled, in whole records."""
    content = _padded(data)
    quotes = np.flatnonzero(content == _QUOTE)
    before = content[quotes[0::2] - 1]  # at 0: the last byte, which is the padding
    after = content[quotes[1::2] + 1]
    return np.concatenate(
        [
            quotes[0::2][~np.isin(before, (_COMMA, _NEWLINE, _RETURN, _QUOTE))],
            quotes[1::2][~np.isin(after, (_COMMA, _NEWLINE, _RETURN, _QUOTE))],
        ]
    )


def lone_returns(data: bytes) -> npt.NDArray[np.int64]:
    """Where a CR ends a line by itself, in whole records."""
    content = _padded(data)
    returns = np.flatnonzero(content == _RETURN)
    lone = returns[content[returns + 1] != _NEWLINE]
    outside: npt.NDArray[np.int64] = lone[_is_outside_quotes(content, lone)]
    return outside


def _last_end(piece: bytes) -> int:
    ends = _ends(np.frombuffer(piece, np.uint8))
    return int(ends[-1]) if len(ends) else 0


def _open_record(piece: bytes) -> str | None:
    return "a quoted field has no end in this row." if piece.count(b'"') % 2 else None


def _ends(content: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """After each line end outside of quotes."""
    newlines = np.flatnonzero(content == _NEWLINE)
    ends: npt.NDArray[np.int64] = newlines[_is_outside_quotes(content, newlines)] + 1
    return ends


def _is_outside_quotes(content: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    is_outside: npt.NDArray[np.bool_] = np.searchsorted(np.flatnonzero(content == _QUOTE), places) % 2 == 0
    return is_outside


def _padded(data: bytes) -> npt.NDArray[np.uint8]:
    """The content and one more line end."""
    return np.frombuffer(data + b"\n", np.uint8)


RECORDS = RecordEnds(last_end=_last_end, open_record=_open_record)


# The types of CSV's texts. A text is a number only if the number says all that the text says: `007` and `1.` are texts.

_WHOLE = "^(0|-?[1-9][0-9]{0,18})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,17})?([eE][+-][0-9]{1,3})?$"  # 7e3 may well be somebody's id
_BOOL = "^(true|false|True|False|TRUE|FALSE)$"
_INT64 = range(-(1 << 63), 1 << 63)
_PATTERNS = {pa.bool_(): _BOOL, pa.int64(): _WHOLE, pa.float64(): _NUMBER}


def type_of(texts: pa.ChunkedArray) -> pa.DataType:
    """The narrowest type that all values have. A column without values is text."""
    if texts.null_count == len(texts):
        return pa.string()
    return next((kind for kind in _PATTERNS if converted(texts, kind) is not None), pa.string())


def converted(texts: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray | None:
    """The values as this type; None if one of them has not got it."""
    if data_type == pa.string():
        return texts
    if not pc.all(pc.match_substring_regex(texts, _PATTERNS[data_type]), min_count=0).as_py():
        return None
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:  # a whole number that does not fit 64 bits
        return None


def misfits(texts: pa.ChunkedArray, data_type: pa.DataType) -> list[int]:
    """The places of the values that have not got this type."""
    is_match = re.compile(_PATTERNS[data_type]).fullmatch
    return [
        place
        for place, text in enumerate(texts.to_pylist())
        if text is not None and not (is_match(text) and (data_type != pa.int64() or int(text) in _INT64))
    ]


def is_readable(data_type: pa.DataType) -> bool:
    """Whether the texts of a CSV file can be read as this type."""
    return data_type == pa.string() or data_type in _PATTERNS


_MISFIT, _FIELDS = "does not fit the run's columns", "another number of fields"
_LONE_QUOTE, _LONE_RETURN = 'a quote (") inside a field', "a line ends with CR alone"
_QUOTE_REMEDY = 'Quote such a field whole, with two quotes for one: "a ""b"" c".'
_Problems = dict[int, tuple[str, str, str]]  # place of a record in its block → reason, detail, remedy


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
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Reads on the caller's thread only."""
        chosen = pa.schema([self.schema.field(name) for name in columns]) if columns else self.schema
        first_row = 0
        for block in self._rows(self._lines.blocks(RECORDS)):
            table, problems = self._typed(block, chosen)
            note_bad_rows(_bad_rows(block, problems), bad, first_row=first_row, uri=self._lines.uri)
            yield from sliced(table, most_rows)
            first_row += len(table)

    def count_rows(self, most: int | None = None) -> int:
        """Counts records, whatever they hold."""
        return counted_rows((len(block.starts) for block in self._rows(self._lines.blocks(RECORDS))), most)

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
        blocks = self._rows(self._lines.sample(RECORDS))
        texts = pa.concat_tables([self._no_texts(), *(self._texts(block)[0] for block in blocks)])
        return pa.schema([pa.field(name, type_of(texts[name])) for name in self._names])

    def _no_texts(self) -> pa.Table:
        return pa.schema([pa.field(name, pa.string()) for name in self._names]).empty_table()

    def _rows(self, blocks: Iterator[Block]) -> Iterator[Records]:
        """The blocks without the line of names."""
        first = next(blocks, None)
        if first is not None:
            yield self._cut(first)[1]
        for block in blocks:
            yield Records(data=block.data, first_line=block.first_line)

    def _cut(self, block: Block) -> tuple[Records, Records]:
        """The line of names, and the rest of the first block."""
        first = Records(data=block.data, first_line=block.first_line)
        starts = [*first.starts.tolist(), len(first.data)]
        if len(starts) == 1:
            raise ShardError(f"{self._lines.uri} has blank lines only. A CSV file begins with a line of names.")
        header = first.part(starts[0], starts[1])
        for reason, detail, remedy in self._unreadable(header).values():
            raise self._lines.error(header.first_line, f"{detail or reason}. {remedy}")
        return header, first.part(starts[1], len(first.data))

    def _typed(self, block: Records, schema: pa.Schema) -> tuple[pa.Table, _Problems]:
        """The rows of a block, of which the bad ones are null, and what is wrong with those."""
        texts, problems = self._texts(block)
        values = [converted(texts[field.name], field.type) for field in schema]
        if any(column is None for column in values):
            for field, column in zip(schema, values, strict=True):
                problem = f'"{field.name}" is a text that the run cannot read as {field.type}'
                for place in misfits(texts[field.name], field.type) if column is None else ():
                    problems.setdefault(place, (_MISFIT, problem, RUN_REMEDY))
            texts = _without(texts, problems)
            values = [converted(texts[field.name], field.type) for field in schema]
        return pa.table(values, schema=schema), problems

    def _texts(self, block: Records) -> tuple[pa.Table, _Problems]:
        """The fields of a block, before they are numbers."""
        rows = len(block.starts)
        if not rows:
            return self._no_texts(), {}
        problems = self._unreadable(block)
        others: list[pyarrow.csv.InvalidRow] = []
        table = self._parsed(block, problems, others)
        if others:
            for row in others:
                found = f"{counted(row.actual_columns, 'field')}, and the line of names has {row.expected_columns:,}"
                problems[row.number - 1] = (_FIELDS, found, CSV_LAYOUT)
            table = self._parsed(block, problems, [])
        if len(table) != rows:
            raise self._lines.error(block.first_line, "not readable as CSV from this line on.")
        return _without(table, problems), problems

    def _unreadable(self, block: Records) -> _Problems:
        """Records that pyarrow would read otherwise. Raises ShardError for a quote that may move the ends of other records."""
        problems = {}
        if not is_utf8(block.data):
            for place, record in enumerate(block.texts()):
                if not is_utf8(record):
                    problems[place] = ("not UTF-8", "not UTF-8", "Convert the file to UTF-8.")
        for offset in lone_returns(block.data):
            place = int(np.searchsorted(block.starts, offset, side="right")) - 1
            problems[place] = (_LONE_RETURN, _LONE_RETURN, "End lines with LF or CR LF.")
        strays = stray_quotes(block.data)
        records = block.texts() if len(strays) else []
        for offset in sorted(strays.tolist()):
            place = int(np.searchsorted(block.starts, offset, side="right")) - 1
            if b"\n" in records[place].rstrip(b"\r\n"):
                raise self._lines.error(block.line_at(offset), f"{_LONE_QUOTE}. {_QUOTE_REMEDY}")
            problems[place] = (_LONE_QUOTE, _LONE_QUOTE, _QUOTE_REMEDY)
        return problems

    def _parsed(self, block: Records, problems: _Problems, others: list[pyarrow.csv.InvalidRow]) -> pa.Table:
        """The fields of the records, without those of another number of fields, which are added to `others`."""
        data = block.data
        if problems:
            nothing = b'""' + b"," * (len(self._names) - 1) + b"\n"
            records = enumerate(block.texts())
            data = b"".join(nothing if place in problems else record for place, record in records)
        try:
            return _parsed(data, self._names, others)
        except pa.ArrowException as error:
            raise self._lines.error(block.first_line, "not readable as CSV from this line on.") from error


def _without(table: pa.Table, problems: _Problems) -> pa.Table:
    """The rows, with null in the bad ones."""
    if not problems:
        return table
    is_bad = np.zeros(len(table), dtype=np.bool_)
    is_bad[list(problems)] = True
    return table.take(pa.array(np.arange(len(table)), mask=is_bad))


def _bad_rows(block: Records, problems: _Problems) -> BadRows:
    if not problems:
        return {}
    ends = np.flatnonzero(np.frombuffer(block.data, np.uint8) == ord("\n"))
    lines = block.first_line + np.searchsorted(ends, block.starts)
    return {
        place: BadRow(place=f"line {lines[place]:,}", reason=reason, detail=detail, remedy=remedy)
        for place, (reason, detail, remedy) in sorted(problems.items())
    }


def _parsed(data: bytes, names: list[str], invalid: list[pyarrow.csv.InvalidRow]) -> pa.Table:
    """The fields as text. A row that has too many or too few is left out and added to `invalid`. Raises ArrowInvalid."""

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    content = pa.array([data], pa.large_binary()).buffers()[2]  # Arrow's own: its thread must not free a Python object
    return pyarrow.csv.read_csv(
        pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=leave_out),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
            check_utf8=False,
        ),
    )
