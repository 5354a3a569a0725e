"""Names and types of columns, for JSON Lines and CSV files, which declare no types."""

import json
import re
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError

ColumnTypes = tuple[tuple[str, str], ...]  # (name, type), as in RunSpec.columns; a type is Arrow's name, or JSON
SEEN = ""  # instead of a type: use the type found in the sample
JSON = "json"  # for values that fit no other type: texts unchanged, other values as JSON
NAMED_TYPES = ("string", "int64", "double", "bool", JSON)  # that --columns accepts
_MOST_SHOWN = 40  # characters of a value in an error
_MOST_NAME = 100  # characters of a field's name in an error


def seen_names(columns: ColumnTypes) -> list[str]:
    return [name for name, kind in columns if kind == SEEN]


def no_such_field(name: str, names: Iterable[str], where: str, *, hint: str = "") -> UsageError:
    known = list(names)
    field, _, kind = name.rpartition(":")
    if field in known:
        *most, last = NAMED_TYPES
        return UsageError(f"{kind!r} is not a type of --columns: {', '.join(most)} or {last}.")
    near = get_close_matches(name, known, n=1)
    meant = f' Did you mean "{near[0]}"?' if near else ""
    return UsageError(
        f'The first rows of {where} have no field "{name}"; they have: {", ".join(known)}.{meant} {hint}'.rstrip()
    )


def schema_of(columns: ColumnTypes, uri: str) -> pa.Schema:
    """Make the Arrow schema of the columns. Raises ShardError for a type that only Parquet has."""
    return pa.schema([(name, _type(name, kind, uri)) for name, kind in columns])


_OF_PARQUET = re.compile(r"dictionary<|map<|large_list<|fixed_size_|decimal\d+\(|, tz=| not null")


def _type(name: str, kind: str, uri: str) -> pa.DataType:
    try:
        if _OF_PARQUET.search(kind):
            raise ValueError(kind)
        return type_named(kind)
    except ValueError as error:
        raise ShardError(
            f'{uri} cannot have the column "{name}" of the run, which is {kind}. Score the file in a run of its own.'
        ) from error


class Misfit(ValueError):
    """A value that does not have the type of its column.

    `reason` omits the value, because rows are counted by reason.
    """

    def __init__(self, path: str, value: Any, kind: str) -> None:
        super().__init__(f"{path} is {_shown(value)}, not {kind}")
        self.path = path
        self.reason = f"{path} is not {kind}"

    def remedy(self, columns: ColumnTypes, *, are_chosen: bool) -> str:
        """Return a sentence with a --columns option that keeps all values of the column, as text.

        The option names the types of the other columns only if the user chose the columns.
        """
        read = [(name, JSON if self._is_in(name) else kind if are_chosen else SEEN) for name, kind in columns]
        names = ",".join(f"{name}:{kind}" if kind in NAMED_TYPES else name for name, kind in read)
        return f"To keep all of its values as text: --columns {shlex.quote(names)}, in a new run with another --output."

    def _is_in(self, column: str) -> bool:
        name = field_path("", column)
        return self.path == name or self.path.startswith((f"{name}.", f"{name}["))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        value = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
    elif len(str(value)) > _MOST_SHOWN:
        return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a longer number"
    return json.dumps(value, ensure_ascii=False)


def field_path(parent: str, name: str) -> str:
    """Return the path of a field in an object, such as `meta.rating`. Unusual names are quoted."""
    shown = name[:_MOST_NAME].encode(errors="replace").decode()
    shown = shown if re.fullmatch(r"[\w\- /:@$]+", shown) else json.dumps(shown, ensure_ascii=False)
    return f"{parent}.{shown}" if parent else shown


# Parse the names of Arrow types, such as `struct<id: int64, tags: list<item: string>>`.

JSON_TEXT = pa.json_()
_FIELD, _NOT_NULL = re.compile(r"(.*?): "), " not null"


def type_named(name: str) -> pa.DataType:
    """Return the Arrow type in which a column with this type is stored: text for JSON.

    Raises ValueError unless `name` is the name of exactly one type.
    """
    return _stored(read_as(name))


def read_as(name: str) -> pa.DataType:
    """Return the Arrow type with this name. For JSON, it is Arrow's extension type JSON_TEXT.

    Raises ValueError unless `name` is the name of exactly one type.
    """
    found, rest = _parsed(name)
    if rest or str(found).replace(str(JSON_TEXT), JSON) != name:
        raise ValueError(f"{name} is not the name of one type")
    return found


def has_json(name: str) -> bool:
    return bool(re.search(rf"(^|: |<){JSON}($|[,>])", name))


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored(kind.value_type)))
    return pa.string() if kind == JSON_TEXT else kind


def _parsed(name: str) -> tuple[pa.DataType, str]:
    if name.startswith("struct<"):
        fields, rest = _fields(name.removeprefix("struct<"))
        return pa.struct(fields), rest
    if head := re.match(r"(large_|fixed_size_)?list<", name):
        (item, *more), rest = _fields(name.removeprefix(head[0]))
        if more:
            raise ValueError("a list has one kind of item")
        if head[1] == "fixed_size_" and (size := re.match(r"\[(\d+)\]", rest)):
            return pa.list_(item, int(size[1])), rest.removeprefix(size[0])
        return (pa.large_list if head[1] else pa.list_)(item), rest
    if name.startswith("map<"):
        key, rest = _parsed(name.removeprefix("map<"))
        value, rest = _parsed(rest.removeprefix(", "))
        return pa.map_(key, value), rest.removeprefix(">")
    plain = _PLAIN.match(name)
    assert plain
    return JSON_TEXT if plain[0] == JSON else _plain(plain[0]), name[plain.end() :]


_PLAIN = re.compile(r"dictionary<[^<>]*>|(?:[^,>(\[ ]|\([^)]*\)|\[[^]]*\])*")


def _plain(name: str) -> pa.DataType:
    if found := re.fullmatch(r"dictionary<values=([^,<>]+), indices=(u?int\d+), ordered=([01])>", name):
        return pa.dictionary(pa.type_for_alias(found[2]), pa.type_for_alias(found[1]), found[3] == "1")
    if found := re.fullmatch(r"timestamp\[(\w+), tz=(.+)\]", name):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"decimal(\d+)\((\d+), (-?\d+)\)", name):
        return getattr(pa, f"decimal{found[1]}")(int(found[2]), int(found[3]))
    if found := re.fullmatch(r"fixed_size_binary\[(\d+)\]", name):
        return pa.binary(int(found[1]))
    return pa.type_for_alias(name)


def _fields(name: str) -> tuple[list[pa.Field], str]:
    fields = []
    while True:
        head = _FIELD.match(name)
        if not head:
            raise ValueError("a field has no name")
        data_type, name = _parsed(name[head.end() :])
        fields.append(pa.field(head[1], data_type, nullable=not name.startswith(_NOT_NULL)))
        name = name.removeprefix(_NOT_NULL)
        if name.startswith(", "):
            name = name[2:]
        elif name.startswith(">"):
            return fields, name[1:]
        else:
            raise ValueError("a list of fields has no end")
