"""Arrow types from their names, such as `struct<id: int64, tags: list<item: string>>`."""

import re

import pyarrow as pa

_FIELD = re.compile(r"(.*?): ")


def type_named(name: str) -> pa.DataType:
    """The type whose `str` is this name. Raises ValueError if there is none, or more than one might be meant."""
    found, rest = _type(name)
    if rest or str(found) != name:
        raise ValueError(f"{name} is not the name of one type")
    return found


def is_named(data_type: pa.DataType) -> bool:
    """Whether its name says what it is. It does not if a field inside is called something like `a: b`."""
    try:
        return bool(type_named(str(data_type)) == data_type)
    except ValueError:
        return False


def _type(name: str) -> tuple[pa.DataType, str]:
    """The type at the start of a name, and what follows it."""
    if name.startswith("struct<"):
        fields, rest = _fields(name.removeprefix("struct<"))
        return pa.struct(fields), rest
    if name.startswith("list<"):
        (item, *more), rest = _fields(name.removeprefix("list<"))
        if more:
            raise ValueError("a list has one kind of item")
        return pa.list_(item), rest
    plain = re.match(r"[^,>]*", name)
    assert plain
    return pa.type_for_alias(plain[0]), name[plain.end() :]


def _fields(name: str) -> tuple[list[pa.Field], str]:
    fields = []
    while True:
        head = _FIELD.match(name)
        if not head:
            raise ValueError("a field has no name")
        data_type, name = _type(name[head.end() :])
        fields.append(pa.field(head[1], data_type))
        if name.startswith(", "):
            name = name[2:]
        elif name.startswith(">"):
            return fields, name[1:]
        else:
            raise ValueError("a list of fields has no end")
