"""The Arrow types of JSON values, and where a value does not have the type that it should have.

Strings stay strings, also those that look like times. A field without values is a string. Messages hold no values.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
