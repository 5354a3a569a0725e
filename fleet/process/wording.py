"""Format a count with its noun: `1 shard`, `8 shards`; and a list of names by its first ones."""

from collections.abc import Sequence
from pathlib import Path


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def first_of(names: Sequence[str], most: int) -> str:
    """The first names: `a, b and 7 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


# Tell whether an argument is a run id, or the path or URI of a run's output.


def is_place(target: str) -> bool:
    """Whether this is a path or URI. A run id has no slash and does not begin with a dot or a tilde."""
    return "/" in target or target.startswith((".", "~")) or Path(target).exists()
