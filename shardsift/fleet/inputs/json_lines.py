"""Rows of a JSON Lines file: one object a line, in UTF-8. A field that a line lacks is null; blank lines are no rows.

pyarrow reads the lines of a block at once. If it refuses them, halving finds the lines that it refuses, and Python says what is
wrong with those. Messages hold no values.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import REMEDY, RUN_REMEDY, SEEN, misfit, no_such_field, seen_names, typed
from shardsift.fleet.inputs.input_file import BadRow, BadRows
from shardsift.fleet.inputs.line_blocks import Block, LineRows, is_utf8

_WHITE = b" \t\r\n"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_NOTHING = b"{}"  # stands for a bad row, since it is read as a row of nulls
_NOT_JSON, _MISFIT = "not valid JSON", "does not fit the run's columns"


class JsonLines(LineRows):
    @cached_property
    def schema(self) -> pa.Schema:
        """Raises ShardError if the first rows have no columns, UsageError if they lack a field whose type they decide."""
        if self.columns is not None and not seen_names(self.columns):
            return typed(self.columns, {}, self.uri)
        rows = self._first_rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = tuple((name, SEEN) for name in names) if self.columns is None else self.columns
        for name in seen_names(columns):
            if name not in names:
                raise no_such_field(name, names, self.uri)
        seen = {name: self._seen_type(name, rows) for name in seen_names(columns)}
        return typed(columns, seen, self.uri)

    def _last_end(self, piece: bytes) -> int:
        return piece.rfind(b"\n") + 1

    def _count(self, block: Block) -> int:
        return sum(1 for _ in _filled_lines(block))

    def _first_rows(self) -> list[dict[str, Any]]:
        """The objects of the first lines that have one. Raises ShardError if none has a field."""
        rows, refused = [], ""
        for block in self._sample():
            for line, text in _filled_lines(block):
                try:
                    rows.append(_object(text))
                except ValueError as error:
                    refused = refused or f" Line {line:,}: {error}."
        if not any(rows):
            raise ShardError(f"{self.uri} has no row with a field, so its columns are not known.{refused}")
        return rows

    def _seen_type(self, name: str, rows: list[dict[str, Any]]) -> pa.DataType:
        try:
            return type_of(row.get(name) for row in rows)
        except ValueError as error:
            raise ShardError(f'{self.uri}: "{name}" has {error}. {REMEDY}') from error

    def _rows(self, block: Block, columns: Sequence[str]) -> tuple[pa.Table, BadRows]:
        table, bad = self._all_columns(block)
        return table.select(columns), bad

    def _all_columns(self, block: Block) -> tuple[pa.Table, BadRows]:
        table = self._parsed(block.data.rstrip(_WHITE))
        if table is not None:
            return table, {}
        lines = list(_filled_lines(block))
        if not lines:
            return self.schema.empty_table(), {}
        refused = dict.fromkeys(self._refused([text for _, text in lines]))
        table = self._parsed(
            b"\n".join(_NOTHING if place in refused else text for place, (_, text) in enumerate(lines))
        )
        if table is None:
            raise self._error(block.first_line, "not readable as JSON Lines from this line on.")
        return table, {place: self._bad_row(*lines[place]) for place in refused}

    def _refused(self, lines: list[bytes], first: int = 0) -> list[int]:
        """The places of the lines that pyarrow does not read, of which the first line has the place `first`."""
        if self._parsed(b"\n".join(lines)) is not None:
            return []
        if len(lines) == 1:
            return [first]
        half = len(lines) // 2
        return [*self._refused(lines[:half], first), *self._refused(lines[half:], first + half)]

    def _bad_row(self, line: int, text: bytes) -> BadRow:
        try:
            detail = self._misfit(_object(text))
        except ValueError as error:
            return BadRow(place=f"line {line:,}", reason=_NOT_JSON, detail=str(error), remedy="")
        return BadRow(place=f"line {line:,}", reason=_MISFIT, detail=detail, remedy=RUN_REMEDY)

    def _misfit(self, row: dict[str, Any]) -> str:
        """Which field of a row the run cannot read. Raises ValueError if it can read each: then the JSON is invalid."""
        for name, value in row.items():
            if name in self.schema.names:
                if self._parsed(json.dumps({name: value}).encode()) is None:
                    return misfit(name, self.schema.field(name).type)
            elif not self.only:
                return f'"{name}" is a field that the run does not have'
        raise ValueError("not valid JSON, perhaps because a field stands twice in an object or a number is too large")

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
                    unexpected_field_behavior="error" if not self.only else "ignore",
                ),
            )
        except pa.ArrowException:
            return None
        if len(table) != data.count(b"\n") + 1 or (any(map(_has_large, table.columns)) and self._is_rounded(data)):
            return None
        return table

    def _is_rounded(self, data: bytes) -> bool:
        """Whether pyarrow reads a whole number as a double that does not hold it."""
        row_type = pa.struct(list(self.schema))
        return any(rounds(json.loads(line), row_type) for line in data.split(b"\n"))


def _has_large(values: pa.ChunkedArray) -> bool:
    """Whether there are doubles from 2**53 on, which do not hold every whole number."""
    if pa.types.is_struct(values.type):
        return any(map(_has_large, values.flatten()))
    if pa.types.is_list(values.type):
        return _has_large(pc.list_flatten(values))
    return bool(pa.types.is_floating(values.type) and pc.any(pc.greater_equal(pc.abs(values), float(1 << 53))).as_py())


def rounds(value: Any, data_type: pa.DataType) -> bool:
    """Whether a whole number in a JSON value is one that a column of doubles does not hold."""
    if isinstance(value, dict):
        return any(rounds(value[inner.name], inner.type) for inner in data_type if inner.name in value)
    if isinstance(value, list):
        return any(rounds(item, data_type.value_type) for item in value)
    if type(value) is not int or not pa.types.is_floating(data_type):
        return False
    return value.bit_length() > 1_023 or int(float(value)) != value


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


def _object(text: bytes) -> dict[str, Any]:
    """The object in a line. Raises ValueError if it is none."""
    if not is_utf8(text):
        raise ValueError("not UTF-8")
    if not text.startswith(b"{"):
        raise ValueError("not a JSON object. Each line has to be one object, like {…}")
    try:
        row: dict[str, Any] = json.loads(text)
        if b"\\u" in text:
            json.dumps(row, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} (character {error.pos + 1:,})") from error
    except UnicodeEncodeError as error:
        raise ValueError("not valid JSON: half of a surrogate pair, which is not Unicode") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error
    return row


# The Arrow types of JSON values.

_MOST_DEPTH = 64
_INT64, _INTEGERS = range(-(1 << 63), 1 << 63), range(-(1 << 63), 1 << 64)  # of int64, and of any integer column


def type_of(values: Iterable[Any], depth: int = 0) -> pa.DataType:
    """The type that most of the values have; rows with others are bad ones. Strings stay strings, whatever they look like.

    Raises ValueError if no column can hold the values. The message ends a sentence that begins with "The field has".
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"lists or objects more than {_MOST_DEPTH} deep")
    by_kind: dict[type, list[Any]] = {}
    for value in values:
        by_kind.setdefault(float if type(value) is int else type(value), []).append(value)
    by_kind.pop(type(None), None)
    kind = max(by_kind, key=lambda kind: len(by_kind[kind]), default=str)
    if kind is list:
        return pa.list_(type_of((item for value in by_kind[list] for item in value), depth + 1))
    if kind is dict:
        return _struct_of(by_kind[dict], depth)
    if kind is float:
        return _number_of(by_kind[float])
    return pa.bool_() if kind is bool else pa.string()


def _struct_of(objects: list[dict[str, Any]], depth: int) -> pa.DataType:
    values: dict[str, list[Any]] = {}
    for name, value in (item for one in objects for item in one.items()):
        values.setdefault(name, []).append(value)
    if not values:
        raise ValueError("only objects without fields, which Parquet cannot hold")
    return pa.struct([(name, type_of(found, depth + 1)) for name, found in values.items()])


def _number_of(numbers: list[int | float]) -> pa.DataType:
    if any(isinstance(number, float) for number in numbers):
        return pa.float64()
    held = [number for number in numbers if number in _INTEGERS]
    return pa.uint64() if max(held, default=0) not in _INT64 and min(held) >= 0 else pa.int64()
