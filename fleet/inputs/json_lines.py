"""Rows of a JSON Lines file: one object a line, in UTF-8. A field that a line lacks is null; blank lines are no rows."""

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from fleet.errors import ShardError
from fleet.inputs.columns import (
    REMEDY,
    RUN_REMEDY,
    Columns,
    counted_rows,
    is_named,
    no_such_field,
    seen_names,
    sliced,
    typed,
)
from fleet.inputs.input_file import STEP_ROWS, BadRow, BadRows, note_bad_rows
from fleet.inputs.line_blocks import Block, LineFile, RecordEnds, is_utf8

_RECORDS = RecordEnds(last_end=lambda piece: piece.rfind(b"\n") + 1)
_WHITE = b" \t\r\n"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_NOTHING = b"{}"  # stands for a bad row, since it is read as a row of nulls
_NOT_JSON, _MISFIT = "not valid JSON", "does not fit the run's columns"
_FEW = 64  # lines that Python looks at together
_MOST_DIGITS = 400  # no column holds a whole number with so many, and Python refuses to read some more
_Problem = tuple[str, str, str]  # reason, detail, remedy
_Named = Callable[[list[tuple[str, Any]]], dict[str, Any]]  # makes an object, or refuses its names


class JsonLines:
    """A JSON Lines file as an InputFile. Without `columns`, those of its first rows; with `only`, others are left out."""

    def __init__(self, lines: LineFile, columns: Columns | None, *, only: bool = False) -> None:
        self._lines = lines
        self._columns = columns
        self._only = {name for name, _ in columns or ()} if only else None

    @cached_property
    def schema(self) -> pa.Schema:
        """Raises ShardError if the first rows have no columns, UsageError if they lack a field whose type they decide."""
        if self._columns is None:
            return self._seen_schema()
        seen = self._seen_schema() if seen_names(self._columns) else pa.schema([])
        if missing := [name for name in seen_names(self._columns) if name not in seen.names]:
            raise no_such_field(missing[0], self._first_fields(), self._lines.uri)
        return typed(self._columns, seen, self._lines.uri)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Reads on the caller's thread only."""
        first_row = 0
        for block in self._lines.blocks(_RECORDS):
            table, found = self._rows(block)
            note_bad_rows(found, bad, first_row=first_row, uri=self._lines.uri)
            yield from sliced(table.select(columns or self.schema.names), most_rows)
            first_row += len(table)

    def count_rows(self, most: int | None = None) -> int:
        """Counts lines, whatever they hold."""
        return counted_rows((sum(1 for _ in _filled_lines(block)) for block in self._lines.blocks(_RECORDS)), most)

    def _rows(self, block: Block) -> tuple[pa.Table, BadRows]:
        """The rows of a block, and the bad ones by their place among them."""
        table = self._parsed(block.data.rstrip(_WHITE))
        if table is not None and not self._may_have_misfits(table):
            return table, {}
        lines = list(_filled_lines(block))
        problems = self._problems([text for _, text in lines])
        found = {
            place: _bad_row(line, problem)
            for place, ((line, _), problem) in enumerate(zip(lines, problems, strict=True))
            if problem
        }
        if table is not None and not found:
            return table, {}
        good = [_NOTHING if place in found else text for place, (_, text) in enumerate(lines)]
        table = self._parsed(b"\n".join(good)) if good else self.schema.empty_table()
        if table is None:
            raise self._lines.error(block.first_line, "not readable as JSON Lines from this line on.")
        return table, found

    def _problems(self, lines: list[bytes]) -> list[_Problem | None]:
        """Why each line cannot be read. Python is slow, so it looks only at lines near one that pyarrow refuses."""
        table = self._parsed(b"\n".join(lines))
        if table is not None and not self._may_have_misfits(table):
            return [None] * len(lines)
        if table is None and len(lines) > _FEW:
            half = len(lines) // 2
            return self._problems(lines[:half]) + self._problems(lines[half:])
        named = _with_names if self._only is not None else _with_unique_names  # pyarrow refuses repeated columns
        problems = [self._problem(line, named) for line in lines]
        good = [line for line, problem in zip(lines, problems, strict=True) if problem is None]
        if table is not None or not good or self._parsed(b"\n".join(good)) is not None:
            return problems
        return [problem or self._unreadable(line) for line, problem in zip(lines, problems, strict=True)]

    def _unreadable(self, line: bytes) -> _Problem | None:
        """Why pyarrow cannot read a line that Python can."""
        if self._parsed(line) is not None:
            return None
        return self._problem(line, _with_unique_names) or (_NOT_JSON, "not readable as JSON", "")

    def _parsed(self, data: bytes) -> pa.Table | None:
        """The rows of some lines. None unless each is one object that pyarrow reads with the schema."""
        if not is_utf8(data) or not _are_objects(data):
            return None
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.schema,
                    newlines_in_values=False,
                    unexpected_field_behavior="error" if self._only is None else "ignore",
                ),
            )
        except pa.ArrowException:
            return None
        return table if len(table) == data.count(b"\n") + 1 else None

    def _may_have_misfits(self, table: pa.Table) -> bool:
        """Whether pyarrow may have rounded a number, or left out fields inside of the columns."""
        return (self._only is not None and self._has_objects) or any(map(has_rounded, table.columns))

    @cached_property
    def _has_objects(self) -> bool:
        return any("struct<" in str(field.type) for field in self.schema)

    def _problem(self, text: bytes, named: _Named) -> _Problem | None:
        """Why a line cannot be read. None also if pyarrow may know a reason."""
        try:
            misfit = next(misfits(self._fields(text, named), self.schema), None)
        except _OddJson as odd:
            table = self._parsed(text)
            is_read = table is not None and not self._may_have_misfits(table)
            return None if is_read else (_NOT_JSON, str(odd), "")
        except ValueError as error:
            return _NOT_JSON, str(error), ""
        return (_MISFIT, misfit, RUN_REMEDY) if misfit else None

    def _seen_schema(self) -> pa.Schema:
        seen, refused = Seen(), ""
        for line, text in self._first_lines():
            try:
                seen.add(self._fields(text, _with_unique_names))
            except ValueError as error:
                refused = refused or f" Line {line:,}: {error}."
        if not seen.fields and (self._only is None or not self._first_fields()):
            raise ShardError(f"{self._lines.uri} has no row with a field, so its columns are not known.{refused}")
        try:
            schema = seen.schema()
        except TypeConflict as conflict:
            raise ShardError(f"{self._lines.uri}: {conflict}. {REMEDY}") from conflict
        if unnamed := next((field.name for field in schema if not is_named(field.type)), None):
            problem = f'"{unnamed}" has fields with names like "a: b", which the name of its type cannot hold'
            raise ShardError(f"{self._lines.uri}: {problem}. {REMEDY}")
        return schema

    def _first_fields(self) -> list[str]:
        """The fields of the first rows, also those that are left out."""
        names: dict[str, None] = {}
        for _, text in self._first_lines():
            with suppress(ValueError):
                names |= dict.fromkeys(_object(text, _with_names))
        return list(names)

    def _first_lines(self) -> Iterator[tuple[int, bytes]]:
        for block in self._lines.sample(_RECORDS):
            yield from _filled_lines(block)

    def _fields(self, text: bytes, named: _Named) -> dict[str, Any]:
        """The fields that are read. Raises ValueError if the line is not an object."""
        row = _object(text, named)
        return row if self._only is None else {name: value for name, value in row.items() if name in self._only}


def _filled_lines(block: Block) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number."""
    for line, text in enumerate(io.BytesIO(block.data), start=block.first_line):
        if stripped := text.strip(_WHITE):
            yield line, stripped


def _are_objects(data: bytes) -> bool:
    """Whether each line begins and ends with a brace. Then none is blank, and no object of valid JSON has more than one line.

    pyarrow's reader ends the process for some lines that are not an object.
    """
    if not data.endswith(b"}"):
        return False
    content = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(content == _NEWLINE)
    ends = newlines - np.where(content[newlines - 1] == _RETURN, 2, 1)
    return content[0] == _OPEN and bool(np.all(content[newlines + 1] == _OPEN) and np.all(content[ends] == _CLOSE))


def _bad_row(line: int, problem: _Problem) -> BadRow:
    reason, detail, remedy = problem
    return BadRow(place=f"line {line:,}", reason=reason, detail=detail, remedy=remedy)


class _OddJson(ValueError):
    """A line that pyarrow may be able to read, but not Python."""


def _object(text: bytes, named: _Named) -> dict[str, Any]:
    """The object in a line. Raises ValueError if it is none."""
    if not is_utf8(text):
        raise ValueError("not UTF-8")
    if not text.startswith(b"{"):
        raise ValueError("not a JSON object. Each line has to be one object, like {…}")
    try:
        row: dict[str, Any] = json.loads(text, object_pairs_hook=named, parse_int=_int, parse_float=_float)
    except json.JSONDecodeError as error:
        kind = _OddJson if b"Inf" in text or b"-NaN" in text else ValueError
        raise kind(f"not valid JSON: {error.msg} (character {error.pos + 1:,})") from error
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from error
    except RecursionError as error:
        raise _OddJson(f"not valid JSON: {error}") from error
    return row


def _with_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = _with_names(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the field "{name}" stands twice in an object')
    return fields


def _with_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if not all(map(is_unicode, fields)):
        raise ValueError("the name of a field has half of a surrogate pair, which is not Unicode")
    return fields


def _int(digits: str) -> int:
    return int(digits[:_MOST_DIGITS])


def _float(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError("a number is too large for a double")
    return value


# The Arrow types of JSON values, and where a value does not have the type that it should have.
#
# Strings stay strings, also those that look like times. A field without values is a string. Messages hold no values.

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_PLAIN: dict[type | None, pa.DataType] = {bool: pa.bool_(), float: pa.float64()}
_MOST_DEPTH = 64
_INT64, _NUMBERS = range(-(1 << 63), 1 << 63), range(-(1 << 63), 1 << 64)  # of int64, and of any integer column


class TypeConflict(ValueError):
    """Values that no column can hold. The message names their field."""


@dataclass
class Seen:
    """What the values of one field were. Most of them decide about its type; rows with others are bad ones."""

    path: str = ""
    votes: Counter[type] = field(default_factory=Counter)  # whole numbers vote for numbers
    has_fraction: bool = False
    smallest: int = 0
    largest: int = 0
    items: "Seen | None" = None
    fields: dict[str, "Seen"] = field(default_factory=dict)

    def add(self, value: Any, depth: int = 0) -> None:
        """Raises ValueError if the value is too deep, in which case nothing is added."""
        if not depth and _is_deeper(value, _MOST_DEPTH):
            raise ValueError(f"lists or objects more than {_MOST_DEPTH} deep")
        if value is None:
            return
        self.votes[float if type(value) is int else type(value)] += 1
        if isinstance(value, dict):
            for name, inner in value.items():
                self._field(name).add(inner, depth + 1)
        elif isinstance(value, list):
            self.items = self.items or Seen(path=f"{self.path}[]")
            for inner in value:
                self.items.add(inner, depth + 1)
        elif isinstance(value, float):
            self.has_fraction = True
        elif type(value) is int and value in _NUMBERS:
            self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)

    def data_type(self) -> pa.DataType:
        """Raises TypeConflict if no column can hold the values."""
        kind = self.votes.most_common(1)[0][0] if self.votes else None
        if kind is list:
            return pa.list_((self.items or Seen()).data_type())
        if kind is dict:
            if not self.fields:
                raise TypeConflict(f'"{self.path}" has only objects without fields, which Parquet cannot hold')
            return pa.struct(list(self.schema()))
        if kind is float and not self.has_fraction:
            return pa.uint64() if self.largest not in _INT64 and not self.smallest else pa.int64()
        return _PLAIN.get(kind, pa.string())

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, inner.data_type()) for name, inner in self.fields.items()])

    def _field(self, name: str) -> "Seen":
        if name not in self.fields:
            self.fields[name] = Seen(path=f"{self.path}.{name}" if self.path else name)
        return self.fields[name]


def _is_deeper(value: Any, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (most < 0 or any(_is_deeper(item, most - 1) for item in inner))


def misfits(row: dict[str, Any], schema: pa.Schema) -> Iterator[str]:
    """What is wrong with a row, such as `"tags[]" is a number, and the run reads it as string`."""
    yield from _in_fields(row, {column.name: column.type for column in schema}, "")


def _in_fields(value: dict[str, Any], types: dict[str, pa.DataType], path: str) -> Iterator[str]:
    for name, inner in value.items():
        inner_path = f"{path}.{name}" if path else name
        if name not in types:
            yield f'"{inner_path}" is a field that the run does not have'
        else:
            yield from _misfit(inner, types[name], inner_path)


def _misfit(value: Any, data_type: pa.DataType, path: str) -> Iterator[str]:
    if isinstance(value, dict) and pa.types.is_struct(data_type):
        yield from _in_fields(value, {inner.name: inner.type for inner in data_type}, path)
    elif isinstance(value, list) and pa.types.is_list(data_type):
        for item in value:
            yield from _misfit(item, data_type.value_type, f"{path}[]")
    elif value is not None and not _fits(value, data_type):
        yield f'"{path}" is {_kind(value, data_type)}, and the run reads it as {data_type}'
    elif isinstance(value, str) and not is_unicode(value):
        yield f'"{path}" has half of a surrogate pair, which is not Unicode'


def _fits(value: Any, data_type: pa.DataType) -> bool:
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(data_type))
    if isinstance(value, int):
        try:
            return (
                float(value) == value if pa.types.is_floating(data_type) else bool(pa.scalar(value, data_type).is_valid)
            )
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return False
    if isinstance(value, float):
        return bool(pa.types.is_floating(data_type))
    if pa.types.is_timestamp(data_type):  # of a run that begins with Parquet
        return isinstance(value, str)
    return isinstance(value, str) and not pa.types.is_nested(data_type) and not pa.types.is_primitive(data_type)


def _kind(value: Any, data_type: pa.DataType) -> str:
    if type(value) is int and (value not in _INT64 or pa.types.is_floating(data_type)):
        return "a larger number"
    return _KINDS[type(value)]


def has_rounded(values: pa.ChunkedArray) -> bool:
    """Whether a double among the values is so large that it may have been a whole number that no double holds."""
    if pa.types.is_struct(values.type):
        return any(map(has_rounded, values.flatten()))
    if pa.types.is_list(values.type):
        return has_rounded(pc.list_flatten(values))
    if not pa.types.is_floating(values.type):
        return False
    ends = pc.min_max(values).as_py()
    return any(end is not None and abs(end) >= 1 << 53 for end in ends.values())


def is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
