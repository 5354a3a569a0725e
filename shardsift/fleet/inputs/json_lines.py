"""Read the rows of a JSON Lines file: one object a line, in UTF-8. A missing field is null; blank lines are skipped.

pyarrow reads a block of lines at once. If pyarrow refuses a block, or if a line has a field that is not a column of the
run, Python reads each line of that block, with the same values as a result.
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import JSON, JSON_TEXT, ColumnTypes, Misfit, field_path, read_as, schema_of
from shardsift.fleet.inputs.input_file import BadRow, BadRows, LeftOut
from shardsift.fleet.inputs.line_blocks import Block, LineRows, is_utf8

_WHITE = b" \t\r\n"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_JSON = "not valid JSON"


class JsonLines(LineRows):
    @cached_property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns, self.uri)

    def sample(self, sample_bytes: int) -> list[dict[str, Any]]:
        rows, refused = [], ""
        for block in self._first_blocks(sample_bytes):
            for line, text in _filled_lines(block):
                try:
                    rows.append(_object(text))
                except ValueError as error:
                    refused = refused or f" Line {line:,}: {error}."
        if not any(rows):
            raise ShardError(f"{self.uri} has no row with a field, so its columns are not known.{refused}")
        return rows

    @staticmethod
    def columns_of(samples: Sequence[Any]) -> ColumnTypes:
        values = _by_field(row for rows in samples for row in rows)
        return tuple((name, json_type(found)) for name, found in values.items())

    def _last_end(self, piece: bytes) -> int:
        return piece.rfind(b"\n") + 1

    def _count(self, block: Block) -> int:
        return sum(1 for _ in _filled_lines(block))

    def _rows(self, block: Block, columns: Sequence[str]) -> tuple[pa.Table, BadRows, LeftOut]:
        table, bad, left_out = self._parsed(block.data.rstrip(_WHITE)), BadRows(), LeftOut()
        if table is None:
            table = self._read_by_line(block, bad, left_out)
        return table.select(columns), bad, left_out

    def _read_by_line(self, block: Block, bad: BadRows, left_out: LeftOut) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for line, text in _filled_lines(block):
            row, others = {}, set[str]()  # a bad row is null in every column
            try:
                row = self._row(text, others)
            except ValueError as error:
                reason, remedy = _NOT_JSON, ""
                if isinstance(error, Misfit):
                    reason, remedy = error.reason, error.remedy(self.columns, are_chosen=self.only)
                bad[len(rows)] = BadRow(position=f"line {line:,}", reason=reason, detail=str(error), remedy=remedy)
            else:
                if others and not self.only:
                    left_out[len(rows)] = tuple(sorted(others))
            rows.append(row)
        return pa.Table.from_struct_array(pa.array(rows, pa.struct(list(self.schema))))

    def _row(self, text: bytes, others: set[str]) -> dict[str, Any]:
        try:
            row = _object(text)
        except ValueError:  # the invalid part may be in a field that is not read
            table = self._parsed(text)
            if table is None:
                raise
            return dict(table.to_pylist()[0])
        return dict(self._reader(row, others))

    @cached_property
    def _reader(self) -> "_Reader":
        return _reader_of(pa.struct([(name, read_as(kind)) for name, kind in self.columns]))

    def _parsed(self, data: bytes) -> pa.Table | None:
        """Read some lines with pyarrow. None if pyarrow refuses a line, or may change a value."""
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
        return None if len(table) != data.count(b"\n") + 1 or any(map(_has_large, table.columns)) else table


def _has_large(values: pa.ChunkedArray) -> bool:
    """Return whether there are doubles of 2**53 or more. They may be rounded integers."""
    if pa.types.is_struct(values.type):
        return any(map(_has_large, values.flatten()))
    if pa.types.is_list(values.type):
        return _has_large(pc.list_flatten(values))
    return bool(pa.types.is_floating(values.type) and pc.any(pc.greater_equal(pc.abs(values), float(1 << 53))).as_py())


def _filled_lines(block: Block) -> Iterator[tuple[int, bytes]]:
    for line, text in enumerate(io.BytesIO(block.data), start=block.first_line):
        if stripped := text.strip(_WHITE):
            yield line, stripped


def _are_objects(data: bytes) -> bool:
    """Return whether each line begins and ends with a brace. If so, no line is blank, and no object spans lines.

    pyarrow's reader crashes the process for some lines that are not objects.
    """
    if not data.endswith(b"}"):
        return False
    content = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(content == _NEWLINE)
    ends = newlines - np.where(content[newlines - 1] == _RETURN, 2, 1)
    return content[0] == _OPEN and bool(np.all(content[newlines + 1] == _OPEN) and np.all(content[ends] == _CLOSE))


def _object(text: bytes) -> dict[str, Any]:
    if not is_utf8(text):
        raise ValueError("not UTF-8")
    if not text.startswith(b"{"):
        raise ValueError("not a JSON object: each line has to be one, like {…}")
    try:
        row: dict[str, Any] = _DECODER.decode(text.decode())
        if _SURROGATE.search(text):
            json.dumps(row, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} (character {error.pos + 1:,})") from error
    except UnicodeEncodeError as error:
        raise ValueError("not valid JSON: half of a surrogate pair, which is not Unicode") from error
    except RecursionError as error:
        raise ValueError("not valid JSON: lists or objects are too deep") from error
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from error
    return row


def _without_doubles(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        names = [name for name, _ in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{field_path('', twice)} stands twice in an object")
    return found


def _finite(number: str) -> float:
    found = float(number)
    if math.isinf(found):
        raise ValueError("a number is too large")
    return found


def _whole_number(number: str) -> int:
    _finite(number)
    return int(number)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubles, parse_float=_finite, parse_int=_whole_number)


# Convert JSON values to values of a column. A value that the column cannot hold raises one of _REFUSALS.

_Reader = Callable[[Any, set[str]], Any]  # (JSON value, set that collects unread fields) → value
_REFUSALS = (ValueError, TypeError, NotImplementedError, OverflowError)
_EXACT = 1 << 53  # below this, a double holds every whole number
_INT64, _UINT64 = range(-(1 << 63), 1 << 63), range(1 << 64)


def _reader_of(kind: pa.DataType, path: str = "") -> _Reader:
    """Return a function that reads values of this type, and raises Misfit for others.

    `path` is their path in the row.
    """
    if pa.types.is_struct(kind):
        return _object_reader({one.name: _reader_of(one.type, field_path(path, one.name)) for one in kind}, path)
    if pa.types.is_list(kind):
        return _list_reader(_reader_of(kind.value_type, f"{path}[]"), path)
    convert = _CONVERTED.get(kind, partial(_cast, kind))

    def read(value: Any, _: set[str]) -> Any:
        try:
            return None if value is None else convert(value)
        except _REFUSALS as error:
            raise Misfit(path, value, str(kind)) from error

    return read


def _object_reader(fields: dict[str, _Reader], path: str) -> _Reader:
    def read(value: Any, others: set[str]) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise Misfit(path, value, "an object")
        if not value.keys() <= fields.keys():
            others.update(field_path(path, name) for name in value.keys() - fields.keys())
        return {name: read_field(value.get(name), others) for name, read_field in fields.items()}

    return read


def _list_reader(read_item: _Reader, path: str) -> _Reader:
    def read(value: Any, others: set[str]) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise Misfit(path, value, "a list")
        return [read_item(item, others) for item in value]

    return read


def _only(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _whole(held: range, value: Any) -> int:
    found = int(value) if type(value) is float and abs(value) < _EXACT and value.is_integer() else value
    if type(found) is not int or found not in held:
        raise ValueError
    return found


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    found = float(_only(int, value))
    if int(found) != value:
        raise ValueError
    return found


def _as_text(value: Any) -> str:
    return value if type(value) is str else json.dumps(value, ensure_ascii=False)


def _cast(kind: pa.DataType, value: Any) -> Any:
    """Convert a value to a type that JSON lacks. A run has such types if its first files are Parquet."""
    if isinstance(value, (bool, dict, list)):
        raise TypeError
    return pa.scalar(value).cast(kind).as_py()


_CONVERTED: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.string(): partial(_only, str),
    pa.large_string(): partial(_only, str),
    pa.bool_(): partial(_only, bool),
    pa.int64(): partial(_whole, _INT64),
    pa.uint64(): partial(_whole, _UINT64),
    pa.float64(): _number,
    JSON_TEXT: _as_text,
}


# Find the types of columns from a sample of their values.

# Limits of a struct. An object with more fields is probably a map, whose keys differ from row to row.
_MOST_DEPTH, _MOST_FIELDS = 64, 256


def json_type(values: Iterable[Any], depth: int = 0) -> str:
    """Find the type that most values have. Rows with values of another type will be bad.

    A string is a text, even if it looks like a number. Returns JSON if there are no values, or if no other type of
    column can hold them.
    """
    by_kind: dict[type, list[Any]] = {}
    for value in values:
        by_kind.setdefault(float if type(value) is int else type(value), []).append(value)
    by_kind.pop(type(None), None)
    kind = max(by_kind, key=lambda kind: len(by_kind[kind]), default=None)
    if depth > _MOST_DEPTH:
        return JSON
    if kind is list:
        return f"list<item: {json_type((item for value in by_kind[list] for item in value), depth + 1)}>"
    if kind is dict:
        return _type_of_objects(by_kind[dict], depth)
    if kind is float:
        return _type_of_numbers(by_kind[float])
    return JSON if kind is None else "bool" if kind is bool else "string"


def _type_of_objects(objects: list[dict[str, Any]], depth: int) -> str:
    values = _by_field(objects)
    if not values or len(values) > _MOST_FIELDS:
        return JSON
    kind = f"struct<{', '.join(f'{name}: {json_type(found, depth + 1)}' for name, found in values.items())}>"
    try:
        names = read_as(kind).names
    except ValueError:  # the names of the fields make the type's name ambiguous
        return JSON
    return kind if names == [*values] else JSON


def _type_of_numbers(numbers: list[int | float]) -> str:
    if any(isinstance(number, float) for number in numbers):
        return "double"
    held = [number for number in numbers if number in _INT64 or number in _UINT64]
    return "uint64" if max(held, default=0) not in _INT64 and min(held) >= 0 else "int64"


def _by_field(objects: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for name, value in (item for one in objects for item in one.items()):
        values.setdefault(name, []).append(value)
    return values
