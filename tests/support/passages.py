"""The passages of a long text, as a user would cut them."""

from collections.abc import Sequence
from typing import TypeVar

Id = TypeVar("Id")


def passages_of(ids: Sequence[Id], room: int, kind: str) -> list[list[Id]]:
    """The parts of a text's ids that `--passages kind` reads, `room` ids each. One if the text is not longer."""
    last = max(0, len(ids) - room)
    if kind.startswith("stride:"):
        starts = [*range(0, last, int(kind.removeprefix("stride:"))), last]
    else:
        middle = -(-last // 2) if last > room else last
        starts = {"head+tail": [0, last], "head+middle+tail": [0, middle, last]}[kind]
    return [list(ids[start : start + room]) for start in dict.fromkeys(starts)]
