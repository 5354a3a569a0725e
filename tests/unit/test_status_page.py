"""docs/status.md describes all that `producer status --json` prints."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.fleet.presence.demand import Wanted
from shardsift.producer.status import RunStatus
from shardsift.producer.status.forecast import Cost, Remaining

PAGE = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
DESCRIBED = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("## For programs") :]))
OPTIONS = {Wanted}  # of `worker start`
TOLD = (RunStatus, Remaining, Cost)
OF_OTHERS = {"queue"}  # a worker's queue is that of the run


def fields_of(kind: type) -> Iterator[str]:
    """The names of all fields, also of the records inside."""
    for name, hint in typing.get_type_hints(kind).items():
        if name not in {field.name for field in dataclasses.fields(kind)}:
            continue
        yield name
        for inner in inner_types(hint):
            yield from fields_of(inner)


def inner_types(hint: object) -> Iterator[type]:
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint) and hint not in OPTIONS:
        yield hint
    for argument in typing.get_args(hint):
        yield from inner_types(argument)


@pytest.mark.parametrize("field", sorted({field for kind in TOLD for field in fields_of(kind)} - OF_OTHERS))
def test_every_field_is_described(field: str) -> None:
    assert field in DESCRIBED


def test_every_field_that_the_json_adds_is_described() -> None:
    added = set(re.findall(r'^\s+"(\w+)":', inspect.getsource(RunStatus.as_json), flags=re.MULTILINE))

    assert len(added) > 4
    assert added <= DESCRIBED
