"""The fields of `producer status --json` that docs/status.md names are printed."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from shardsift.producer.status import RunStatus
from shardsift.producer.status.forecast import Cost, Remaining

PAGE = (Path(__file__).parents[2] / "docs" / "status.md").read_text()


def fields_of(kind: type) -> Iterator[str]:
    """The names of all fields, also of the records inside."""
    for name, hint in typing.get_type_hints(kind).items():
        yield name
        for inner in inner_types(hint):
            yield from fields_of(inner)


def inner_types(hint: object) -> Iterator[type]:
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from inner_types(argument)


def test_every_field_that_the_page_names_is_printed() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", PAGE[PAGE.index("## For programs") :], flags=re.MULTILINE)
    named = {field for row in rows for cell in row for field in re.findall(r"`(\w+)`", cell)}
    added = set(re.findall(r'^\s+"(\w+)":', inspect.getsource(RunStatus.as_json), flags=re.MULTILINE))

    assert len(named) > 30
    assert named - added <= {field for kind in (RunStatus, Remaining, Cost) for field in fields_of(kind)}
