"""The columns of files that do not say their types."""

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError

Columns = tuple[tuple[str, str], ...]  # (name, Arrow type), as in RunSpec.columns
SEEN = ""  # instead of a type: that of the first rows
NAMED_TYPES = ("string", "int64", "double", "bool")  # of --columns
REMEDY = "All rows of a run need the same types. Leave the field out with --columns, or convert the files to Parquet."
RUN_REMEDY = f"{REMEDY} Either is a new run, with another --output."


def seen_names(columns: Columns) -> list[str]:
    """The columns whose types are those of the first rows."""
    return [name for name, kind in columns if kind == SEEN]


def no_such_field(name: str, names: Iterable[str], uri: str, *, hint: str = "") -> UsageError:
    """About a field of --columns that the first rows do not have. They have those of `names`."""
    known = list(names)
    field, _, kind = name.rpartition(":")
    if field in known:
        *most, last = NAMED_TYPES
        return UsageError(f"{kind!r} is not a type of --columns: {', '.join(most)} or {last}.")
    return UsageError(f'{uri} has no field "{name}" in its first rows; it has: {", ".join(known)}. {hint}'.rstrip())


def typed(columns: Columns, seen: Mapping[str, pa.DataType], uri: str) -> pa.Schema:
    """The columns, of which those without a type have that of the first rows.

    Raises ShardError for a type that only Parquet has.
    """
    return pa.schema([(name, _type(name, kind, uri) if kind else seen[name]) for name, kind in columns])


_OF_PARQUET = re.compile(r"dictionary<|map<|large_list<|fixed_size_|decimal\d+\(|, tz=| not null")


def _type(name: str, kind: str, uri: str) -> pa.DataType:
    try:
        if _OF_PARQUET.search(kind):
            raise ValueError(kind)
        return type_named(kind)
    except ValueError as error:
        raise ShardError(f'{uri} cannot have the column "{name}" of the run, which is {kind}. {RUN_REMEDY}') from error


def misfit(name: str, data_type: pa.DataType) -> str:
    """Say that a row has a value of another type."""
    return f'"{name}" has a value that the run cannot read as {data_type}'


# Arrow types from their names, such as `struct<id: int64, tags: list<item: string>>`.

_FIELD, _NOT_NULL = re.compile(r"(.*?): "), " not null"


def type_named(name: str) -> pa.DataType:
    """The type whose `str` is this name. Raises ValueError if there is none, or more than one might be meant."""
    found, rest = _parsed(name)
    if rest or str(found) != name:
        raise ValueError(f"{name} is not the name of one type")
    return found


def _parsed(name: str) -> tuple[pa.DataType, str]:
    """The type at the start of a name, and what follows it."""
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
    return _plain(plain[0]), name[plain.end() :]


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
